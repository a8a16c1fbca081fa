// Where the output of one worker goes: its pipes, and what the log pump is to
// do with them. Pure, but for the pipes.
#ifndef DDLAUNCH_LAUNCHER_LOGS_WORKER_STREAMS_H_
#define DDLAUNCH_LAUNCHER_LOGS_WORKER_STREAMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"
#include "launcher/launch_config.h"
#include "launcher/logs/log_files.h"
#include "launcher/logs/log_pump.h"
#include "launcher/round_info.h"

namespace ddl {

struct OutputPipe {
  UniqueFd read_end;   // non-blocking: ours
  UniqueFd write_end;  // blocking: the worker's
};

// RESOURCE_EXHAUSTED: no descriptor left.
absl::StatusOr<OutputPipe> MakeOutputPipe();

// Takes the read ends and the files.
std::vector<StreamSpec> StreamsOf(const LaunchConfig& config, const RoundInfo& round,
                                  std::int32_t local_rank, WorkerFiles& files, OutputPipe& out,
                                  OutputPipe& err);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_WORKER_STREAMS_H_
