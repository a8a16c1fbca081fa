// `ddlaunch tune`: its flags and program -> TuneConfig.
#ifndef DDLAUNCH_LAUNCHER_CLI_TUNE_H_
#define DDLAUNCH_LAUNCHER_CLI_TUNE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/parse.h"

namespace ddl::cli {

// `args` without the word `tune`. The flags of a launch are checked as for one.
// Errors: as ParseCommandLine.
absl::StatusOr<ParseResult> ParseTuneCommand(const std::vector<std::string>& args,
                                             const Surroundings& surroundings);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_TUNE_H_
