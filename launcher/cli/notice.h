// Something to say once logging is set up: what was chosen for the user.
#ifndef DDLAUNCH_LAUNCHER_CLI_NOTICE_H_
#define DDLAUNCH_LAUNCHER_CLI_NOTICE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ddl::cli {

struct Notice {
  enum class Level : std::uint8_t { kDebug, kInfo, kWarning };
  Level level = Level::kInfo;
  std::string text;
};
using Notices = std::vector<Notice>;

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_NOTICE_H_
