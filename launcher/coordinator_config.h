// CoordinatorConfig: what the user asked of `ddlaunch coordinator`, validated
// once. launcher/cli makes it. A plain value.
#ifndef DDLAUNCH_LAUNCHER_COORDINATOR_CONFIG_H_
#define DDLAUNCH_LAUNCHER_COORDINATOR_CONFIG_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "agent/base/clock.h"

namespace ddl {

struct CoordinatorConfig {
  std::string listen_host = "::";  // "::": every address of this host, IPv4 too
  std::uint16_t listen_port = 0;   // 0: a free one
  // How often a node says that it is there, and after what silence it is lost.
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(5);
  std::string token;  // a secret; empty: everybody is admitted
  bool verbose = false;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_COORDINATOR_CONFIG_H_
