// The texts of --help and --version.
#ifndef DDLAUNCH_LAUNCHER_CLI_HELP_H_
#define DDLAUNCH_LAUNCHER_CLI_HELP_H_

#include <string>

#include "launcher/cli/flags.h"

namespace ddl::cli {

std::string HelpText(Command command);
std::string VersionText();

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_HELP_H_
