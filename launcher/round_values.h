// Between the rendezvous's values and the worker group's. Pure.
#ifndef DDLAUNCH_LAUNCHER_ROUND_VALUES_H_
#define DDLAUNCH_LAUNCHER_ROUND_VALUES_H_

#include <string>

#include "agent/core/types.h"
#include "launcher/round_info.h"

namespace ddl {

core::WorkerFailure ToFailure(const WorkerExit& exit, const std::string& host);

RoundInfo ToRoundInfo(const core::RoundStart& start, const std::string& job_id,
                      const std::string& gateway);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_ROUND_VALUES_H_
