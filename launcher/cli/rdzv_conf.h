// --rdzv-conf: torchrun's settings of the rendezvous, as KEY=VALUE pairs. Pure.
//
//   join_timeout            until all (or MIN) nodes are there; 600 s
//   timeout                 the static backend's name for it
//   last_call_timeout       from MIN nodes on, for more of them; 5 s
//   close_timeout           the coordinator's host waits so long for the others'
//                           goodbyes; 5 s
//   heartbeat_timeout       silence after which a node is lost; 5 s
//   keep_alive_interval, keep_alive_max_attempt
//                           the same, as interval x attempts; torchrun's 5 s and
//                           3 stand for the one that is not given
//   is_host                 whether this node serves the meeting
//   rank                    as --node-rank
//   read_timeout, use_libuv, store_type
//                           taken; they are about a store that is not used here
#ifndef DDLAUNCH_LAUNCHER_CLI_RDZV_CONF_H_
#define DDLAUNCH_LAUNCHER_CLI_RDZV_CONF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/clock.h"

namespace ddl::cli {

// When a node counts as lost, and how often it says that it is there.
struct Heartbeats {
  Duration interval = std::chrono::seconds(1);
  Duration timeout = std::chrono::seconds(5);
};

struct RdzvConf {
  std::optional<Duration> join_timeout;  // also by `timeout`
  std::optional<Duration> last_call_timeout;
  std::optional<Duration> close_timeout;
  std::optional<Heartbeats> heartbeats;
  std::optional<bool> is_host;
  std::optional<std::int64_t> rank;
  // For who asks: what was taken and does less than its name says.
  std::vector<std::string> remarks;
};

// INVALID_ARGUMENT: an unknown key (the nearest one is named), a key without a
// value or twice, a value out of its range, two that contradict each other.
absl::StatusOr<RdzvConf> ParseRdzvConf(std::string_view text);

// The same for a standing coordinator, which only judges who is there: what a
// job decides is refused. Only `heartbeats` and `remarks` are ever set.
absl::StatusOr<RdzvConf> ParseCoordinatorConf(std::string_view text);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_RDZV_CONF_H_
