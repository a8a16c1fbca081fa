// The flags that say which nodes make the job and where they meet: --nnodes,
// --node-rank, --rdzv-*, --standalone, --master-*, --local-addr.
#ifndef DDLAUNCH_LAUNCHER_CLI_MEETING_H_
#define DDLAUNCH_LAUNCHER_CLI_MEETING_H_

#include "absl/status/status.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/parse.h"
#include "launcher/launch_config.h"

namespace ddl::cli {

// Fills in the membership and meeting fields of `config`.
absl::Status ApplyMeetingFlags(const Arguments& arguments, LaunchConfig& config, Notices& notices);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_MEETING_H_
