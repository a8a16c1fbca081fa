// The command line and the environment -> one validated LaunchConfig (or
// CoordinatorConfig).
//
// Everything a user can get wrong alone on one node is found here, before
// anything is started: unknown flags, values out of range, flags that
// contradict each other, no place to meet, a plan that does not multiply out, a
// program that cannot be run.
#ifndef DDLAUNCH_LAUNCHER_CLI_PARSE_H_
#define DDLAUNCH_LAUNCHER_CLI_PARSE_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/binding/devices.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/notice.h"
#include "launcher/cli/program.h"
#include "launcher/coordinator_config.h"
#include "launcher/launch_config.h"
#include "launcher/tune/tune_config.h"

namespace ddl::cli {

// Print `text` to stdout and exit: --help, --version, `ddlaunch plan`.
struct PrintAndExit {
  std::string text;
  int exit_code = 0;
};

struct LaunchCommand {
  LaunchConfig config;
  Notices notices;
};

// The first word is `coordinator`. (A program of that name is run as
// ./coordinator, or after `--`.)
struct CoordinatorCommand {
  CoordinatorConfig config;
  Notices notices;
};

// The first word is `tune`.
struct TuneCommand {
  TuneConfig config;
  Notices notices;
};

using ParseResult = std::variant<PrintAndExit, LaunchCommand, CoordinatorCommand, TuneCommand>;

// What the command line is read against; a test gives its own.
struct Surroundings {
  Environment environment;
  SearchPlaces places;
  DeviceSources devices;
};
// This process's: `environ` as in environ(7), its directory, its own path.
Surroundings SurroundingsOfThisProcess(const char* const* environ);

// `args` without argv[0]. Errors: INVALID_ARGUMENT, a usage error; NOT_FOUND
// and PERMISSION_DENIED, the program (see program.h). Each message is one line
// that names the flag or variable and its value; launcher/exit_code.h has their
// exit codes.
absl::StatusOr<ParseResult> ParseCommandLine(const std::vector<std::string>& args,
                                             const Surroundings& surroundings);
absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Surroundings& surroundings);

// The values of `arguments` and its program as a launch, for the commands that start
// one. Errors: as ParseCommandLine.
absl::StatusOr<LaunchCommand> ReadLaunch(const Arguments& arguments,
                                         const Surroundings& surroundings);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_PARSE_H_
