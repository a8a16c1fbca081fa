// Between the rendezvous's values and the worker group's. Pure.
#ifndef DDLAUNCH_LAUNCHER_ROUND_VALUES_H_
#define DDLAUNCH_LAUNCHER_ROUND_VALUES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "agent/core/types.h"
#include "launcher/failures/out_of_memory.h"
#include "launcher/round_info.h"

namespace ddl {

core::WorkerFailure ToFailure(const WorkerExit& exit, const std::string& host);

// Whether it ended for lack of its device's memory: by what the worker reported, by
// --oom-exit-codes, or by its last words. Then the hint is about that.
void MarkOutOfMemory(const std::set<std::int32_t>& exit_codes,
                     const std::optional<MemoryReport>& reported, core::WorkerFailure& failure);

RoundInfo ToRoundInfo(const core::RoundStart& start, const std::string& job_id,
                      const std::string& gateway);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_ROUND_VALUES_H_
