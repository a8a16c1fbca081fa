// The manual page ddlaunch(1), made from the table of flags and the texts of --help.
#ifndef DDLAUNCH_LAUNCHER_CLI_MANUAL_H_
#define DDLAUNCH_LAUNCHER_CLI_MANUAL_H_

#include <string>

namespace ddl::cli {

// In the language of man(7).
std::string ManualPage();

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_MANUAL_H_
