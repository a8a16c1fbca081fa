// A TCP socket that listens, on one address of this host or on all of them.
#ifndef DDLAUNCH_LAUNCHER_NET_TCP_LISTENER_H_
#define DDLAUNCH_LAUNCHER_NET_TCP_LISTENER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"
#include "launcher/net/address.h"

namespace ddl {

struct TcpListener {
  UniqueFd fd;  // non-blocking, not inherited
  std::uint16_t port = 0;
};

// On the first of `addresses` that is this host's, IPv4 before IPv6: what a name
// stands for is tried by clients in any order. Port 0: a free one.
// ALREADY_EXISTS: the port is in use there; PERMISSION_DENIED: it is not for
// everybody; NOT_FOUND: none of the addresses is this host's;
// RESOURCE_EXHAUSTED: no port or descriptor is free.
absl::StatusOr<TcpListener> ListenOn(const std::vector<SocketAddress>& addresses,
                                     std::uint16_t port);

// On all of them, IPv6 and IPv4. The same errors but NOT_FOUND.
absl::StatusOr<TcpListener> ListenOnEveryAddress(std::uint16_t port);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NET_TCP_LISTENER_H_
