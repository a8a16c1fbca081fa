// What this node's workers are and get: how many, bound to what, with whose
// variables.
#ifndef DDLAUNCH_LAUNCHER_CLI_WORKER_FLAGS_H_
#define DDLAUNCH_LAUNCHER_CLI_WORKER_FLAGS_H_

#include "absl/status/status.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/notice.h"
#include "launcher/cli/parse.h"
#include "launcher/launch_config.h"

namespace ddl::cli {

// Errors: INVALID_ARGUMENT, named as in parse.h.
absl::Status ApplyWorkerFlags(const Arguments& arguments, const Surroundings& surroundings,
                              LaunchConfig& config, Notices& notices);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_WORKER_FLAGS_H_
