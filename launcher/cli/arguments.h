// The command line, the environment and the file of --config as raw text for each flag, before any
// value is looked at: which flags were given, where each came from, and where
// the program begins. Everything after the program is the program's own.
#ifndef DDLAUNCH_LAUNCHER_CLI_ARGUMENTS_H_
#define DDLAUNCH_LAUNCHER_CLI_ARGUMENTS_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/cli/flags.h"

namespace ddl::cli {

using Environment = std::map<std::string, std::string>;

// What one flag was given; for a switch the text is "1" or "0".
struct RawValue {
  std::string text;
  std::string origin;  // "--nnodes", "PET_NNODES" or "train.yaml:3: nnodes", for messages
};

struct Arguments {
  std::map<FlagId, RawValue> values;
  std::optional<std::string> program;  // the script, program or module
  std::vector<std::string> program_args;

  // Null when the flag was given nowhere.
  [[nodiscard]] const RawValue* Find(FlagId id) const;
};

// `args` without the program's own name (argv[0]) and the command's word. A flag
// on the command line wins over its PET_ variable, and that over --config's file; an
// empty variable counts as unset.
// Errors: INVALID_ARGUMENT, an unknown or ambiguous flag, a flag without its
// value, a switch with one; the file of --config (see config_file.h).
absl::StatusOr<Arguments> ScanArguments(const std::vector<std::string>& args,
                                        const Environment& environment, Command command);

// "--nnodes=3:1: must be ...": INVALID_ARGUMENT that names the flag (or the
// variable) and the value in front of what is wrong with it.
absl::Status BadValue(const RawValue& value, std::string_view why);

// The flag's value as `parse` (string_view -> StatusOr<T>) reads it; nothing
// when the flag was not given.
template <typename Parse>
auto ReadFlag(const Arguments& arguments, FlagId id, Parse parse)
    -> absl::StatusOr<std::optional<typename decltype(parse(std::string_view()))::value_type>> {
  using T = typename decltype(parse(std::string_view()))::value_type;
  const RawValue* const raw = arguments.Find(id);
  if (raw == nullptr) {
    return std::optional<T>();
  }
  auto parsed = parse(raw->text);
  if (!parsed.ok()) {
    return BadValue(*raw, std::string(parsed.status().message()));
  }
  return std::optional<T>(*std::move(parsed));
}

// A switch; off when it was not given.
absl::StatusOr<bool> ReadSwitch(const Arguments& arguments, FlagId id);

// Variables named PET_something that no flag of a launch reads: most likely a slip.
std::vector<std::string> UnknownPetVariables(const Environment& environment);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_ARGUMENTS_H_
