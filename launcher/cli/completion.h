// --print-completion: scripts that complete ddlaunch's command line in a shell,
// made from the table of flags. They complete the flags of each command, in
// either spelling, the values that are words of a list, files and directories
// where those are meant, and files for the program.
#ifndef DDLAUNCH_LAUNCHER_CLI_COMPLETION_H_
#define DDLAUNCH_LAUNCHER_CLI_COMPLETION_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ddl::cli {

// `shell` is bash or zsh. The script needs nothing but the shell: bash 4.4 or
// later, with or without the package bash-completion; zsh with compinit loaded.
// INVALID_ARGUMENT: another shell.
absl::StatusOr<std::string> CompletionScript(std::string_view shell);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_COMPLETION_H_
