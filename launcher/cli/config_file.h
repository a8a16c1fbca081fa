// --config: flags from a YAML file, which is a map of their names to their values.
//
//   global-batch-size: 1024      # or global_batch_size
//   env: [torch, mpi]            # a list, where the flag takes one; or torch,mpi
//   worker-store: true           # a switch
//
// The command line and variables win over it. Flags of ddlaunch's other commands
// (not of the coordinator) are known and left alone, so that one file serves launch,
// plan and tune. Anchors, aliases, tags and several documents are refused: a file of
// flags needs none of them.
#ifndef DDLAUNCH_LAUNCHER_CLI_CONFIG_FILE_H_
#define DDLAUNCH_LAUNCHER_CLI_CONFIG_FILE_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/flags.h"

namespace ddl::cli {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20U;

// The flags of `command` that `text` gives, each with "NAME:LINE: flag" as its
// origin. A value is looked at later, by whoever reads the flag.
// Errors: INVALID_ARGUMENT that begins with NAME:LINE:COLUMN, no YAML or not of this
// form; an unknown key, a key twice, a key that is not for files.
absl::StatusOr<std::map<FlagId, RawValue>> ParseConfig(std::string_view text,
                                                       const std::string& name, Command command);

// The same from a file (or a pipe), of at most kMaxConfigBytes.
// Errors: also INVALID_ARGUMENT, it cannot be read; that names where the path came from.
absl::StatusOr<std::map<FlagId, RawValue>> ReadConfigFile(const RawValue& path, Command command);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_CONFIG_FILE_H_
