// Waiting for a host name that does not resolve yet: its record may still be on
// its way (a cluster's DNS), or the network may not be up.
#ifndef DDLAUNCH_LAUNCHER_NET_NAME_LOOKUP_H_
#define DDLAUNCH_LAUNCHER_NET_NAME_LOOKUP_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "launcher/net/address.h"

namespace ddl {

// How long a wait may take, and what else its caller listens to meanwhile.
struct Patience {
  Instant give_up_at{};  // long past: one try
  // While `fd` is readable `should_stop` is asked; true ends the wait. -1: none.
  int fd = -1;
  std::function<bool()> should_stop;
  // Told why it takes long, now and then; may be empty.
  std::function<void(const std::string&)> notice;
};

// Looks `host` up, again each second until it resolves. The look-up itself runs
// in a thread of its own: it can take long, and nothing ends it.
// NOT_FOUND: not in time, or it is written as an address and is none (found at
// once). CANCELLED: should_stop() said so.
absl::StatusOr<std::vector<SocketAddress>> LookUp(const std::string& host, std::uint16_t port,
                                                  const Patience& patience);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NET_NAME_LOOKUP_H_
