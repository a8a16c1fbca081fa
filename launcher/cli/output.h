// Where the workers' output goes: the flags about logs, console and events.
#ifndef DDLAUNCH_LAUNCHER_CLI_OUTPUT_H_
#define DDLAUNCH_LAUNCHER_CLI_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/notice.h"
#include "launcher/launch_config.h"

namespace ddl::cli {

// REQUIRES: config.nproc is set. `cwd` is what a relative --log-dir starts from.
// Errors: INVALID_ARGUMENT, named as in parse.h.
absl::Status ApplyOutputFlags(const Arguments& arguments, const std::string& cwd,
                              LaunchConfig& config, Notices& notices);

// Makes --log-dir, if one was given: the one thing of a command line that is done
// and not only read, before anything starts. A disk that is full is no error here:
// it is warned of later, and training goes on. INVALID_ARGUMENT: no files can be
// made there.
absl::Status MakeLogDirectory(const LaunchConfig& config);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_OUTPUT_H_
