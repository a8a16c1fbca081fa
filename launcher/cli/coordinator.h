// The flags of `ddlaunch coordinator`: a rendezvous for many jobs.
#ifndef DDLAUNCH_LAUNCHER_CLI_COORDINATOR_H_
#define DDLAUNCH_LAUNCHER_CLI_COORDINATOR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/parse.h"

namespace ddl::cli {

// `args` after the word `coordinator`. Errors as for ParseCommandLine.
absl::StatusOr<ParseResult> ParseCoordinatorCommand(const std::vector<std::string>& args,
                                                    const Surroundings& surroundings);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_COORDINATOR_H_
