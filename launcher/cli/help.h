// The texts of --help and --version.
#ifndef DDLAUNCH_LAUNCHER_CLI_HELP_H_
#define DDLAUNCH_LAUNCHER_CLI_HELP_H_

#include <string>

namespace ddl::cli {

std::string HelpText();
std::string VersionText();

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_HELP_H_
