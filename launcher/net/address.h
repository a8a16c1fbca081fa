// Which addresses this host has, and which of them others reach it by.
//
// Blocking name look-ups (getaddrinfo) and kernel queries; thread safe. A host's
// own name is never resolved: on many machines it maps to 127.0.1.1, which is of
// no use to a peer.
#ifndef DDLAUNCH_LAUNCHER_NET_ADDRESS_H_
#define DDLAUNCH_LAUNCHER_NET_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ddl {

// "127.0.0.1", "::1" and the rest of the loopback range; not names.
bool IsLoopbackLiteral(const std::string& host);
// An IPv4 or IPv6 address in numbers.
bool IsAddressLiteral(const std::string& host);

// Whether `host`, a name or an address, is (also) an address of this host.
// NOT_FOUND: the name cannot be resolved; the message says why.
absl::StatusOr<bool> IsOwnAddress(const std::string& host);

// The local address from which packets to `host` leave: by a connected UDP
// socket, which sends nothing. Of a name with several addresses that are reached
// from different ones here, the way that answers to a TCP connection to `port`
// counts; that may take a second. Where that is a loopback address though `host`
// is not written as one (the host's name maps to 127.0.1.1, and this is that
// host), the address of the default route, else the first of an interface that
// is up, so that peers can reach it.
// UNAVAILABLE: there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, std::uint16_t port);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NET_ADDRESS_H_
