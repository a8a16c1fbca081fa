// The secret that admits nodes: --rdzv-token-file, or the variable
// DDL_RDZV_TOKEN where no file is given. It is never part of a message.
#ifndef DDLAUNCH_LAUNCHER_CLI_TOKEN_H_
#define DDLAUNCH_LAUNCHER_CLI_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/notice.h"

namespace ddl::cli {

inline constexpr const char* kTokenVariable = "DDL_RDZV_TOKEN";

// Empty when none is given. A file holds it as one line; its name is relative to
// `cwd`. A file that others may read is warned of.
// INVALID_ARGUMENT: no such file, not to be read, or no token in it.
absl::StatusOr<std::string> ReadToken(const Arguments& arguments, const Environment& environment,
                                      const std::string& cwd, Notices& notices);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_TOKEN_H_
