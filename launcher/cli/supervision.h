// Failure and stop: the flags about restarts, signals and grace.
#ifndef DDLAUNCH_LAUNCHER_CLI_SUPERVISION_H_
#define DDLAUNCH_LAUNCHER_CLI_SUPERVISION_H_

#include "absl/status/status.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/notice.h"
#include "launcher/launch_config.h"

namespace ddl::cli {

// Also reads those that are taken for torchrun's sake and change nothing: a bad
// value of one is an error all the same. Errors: INVALID_ARGUMENT, named as in
// parse.h.
absl::Status ApplySupervisionFlags(const Arguments& arguments, LaunchConfig& config,
                                   Notices& notices);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_SUPERVISION_H_
