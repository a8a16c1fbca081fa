// --log-line-prefix-template: Python's string.Template over a worker's names, as
// torchrun has it. Pure.
//   ${role_name} $role_name ${local_rank} ${rank} ${hostname}; $$ is a dollar
#ifndef DDLAUNCH_LAUNCHER_LOGS_PREFIX_TEMPLATE_H_
#define DDLAUNCH_LAUNCHER_LOGS_PREFIX_TEMPLATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace ddl {

struct PrefixValues {
  std::string role_name;
  std::int32_t local_rank = 0;
  std::int32_t rank = 0;
  std::string hostname;
};

// INVALID_ARGUMENT: a name that is none of these, or more than one line.
absl::Status CheckPrefixTemplate(std::string_view text);

// What is not understood stays as it is.
std::string FillPrefixTemplate(std::string_view text, const PrefixValues& values);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_PREFIX_TEMPLATE_H_
