// MeetingPlace: where this node's agent finds its coordinator, and whether it
// has to host it.
//
// One node without an endpoint: it hosts, on a free port of the loopback
// interface. Otherwise the ddlaunch whose host owns the endpoint's address
// hosts; when the endpoint's port is taken there, another ddlaunch of the same
// host got it first, and this one joins as a client.
#ifndef DDLAUNCH_LAUNCHER_NET_MEETING_PLACE_H_
#define DDLAUNCH_LAUNCHER_NET_MEETING_PLACE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/core/types.h"
#include "agent/service/coordinator.h"
#include "launcher/launch_config.h"
#include "launcher/net/name_lookup.h"

namespace ddl {

struct MeetingPlace {
  std::unique_ptr<Coordinator> coordinator;  // null: hosted by another
  std::string endpoint;                      // "host:port" to connect to
  std::string own_address;                   // what this node advertises
  // This host owns the endpoint, but something holds its port: another ddlaunch,
  // which answers at once, or a stranger.
  bool port_was_taken = false;
  // Whether anybody on the network could join: the listening address is not
  // loopback, and no token is asked for.
  bool is_open_to_network = false;
  // Worth saying when nobody comes; else empty.
  std::string hint;
};

// An endpoint's name that does not resolve yet is waited for as `patience` says.
// Errors: NOT_FOUND, the name cannot be resolved; CANCELLED, the wait for it was
// stopped; ALREADY_EXISTS, told to host (is_host=1) and the port is taken;
// UNAVAILABLE, no route.
absl::StatusOr<MeetingPlace> FindMeetingPlace(const LaunchConfig& config, const Patience& patience,
                                              std::function<void(const core::Explain&)> explain);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NET_MEETING_PLACE_H_
