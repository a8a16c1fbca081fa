// Why workers could not be started, in words. Thread safe.
#ifndef DDLAUNCH_LAUNCHER_WORKER_START_ERROR_H_
#define DDLAUNCH_LAUNCHER_WORKER_START_ERROR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "launcher/launch_config.h"
#include "launcher/worker/supervisor_protocol.h"

namespace ddl {

// NOT_FOUND and PERMISSION_DENIED: the program cannot be executed;
// INVALID_ARGUMENT: the directory or the arguments; FAILED_PRECONDITION: its
// CPUs; else RESOURCE_EXHAUSTED.
// REQUIRES: `event` is a kSpawnFailed.
absl::Status StartError(const LaunchConfig& config, const SupervisorEvent& event);

// Raises this process's soft limit of open files if `nproc` workers need it.
// RESOURCE_EXHAUSTED: the hard limit is too low; needed and allowed are named.
absl::Status EnsureOpenFiles(std::int32_t nproc);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_START_ERROR_H_
