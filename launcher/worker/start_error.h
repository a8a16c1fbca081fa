// Why workers could not be started, in words. Thread safe.
#ifndef DDLAUNCH_LAUNCHER_WORKER_START_ERROR_H_
#define DDLAUNCH_LAUNCHER_WORKER_START_ERROR_H_

#include "absl/status/status.h"
#include "launcher/launch_config.h"
#include "launcher/process/supervisor_protocol.h"

namespace ddl {

// NOT_FOUND and PERMISSION_DENIED: the program cannot be executed;
// INVALID_ARGUMENT: the directory or the arguments; FAILED_PRECONDITION: its
// CPUs; else RESOURCE_EXHAUSTED.
// REQUIRES: `event` is a kSpawnFailed.
absl::Status StartError(const LaunchConfig& config, const SupervisorEvent& event);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_START_ERROR_H_
