// Which addresses this host has, and which of them others reach it by.
//
// Blocking name look-ups (getaddrinfo) and kernel queries; thread safe. A host's
// own name is never resolved: on many machines it maps to 127.0.1.1, which is of
// no use to a peer.
#ifndef DDLAUNCH_LAUNCHER_NET_ADDRESS_H_
#define DDLAUNCH_LAUNCHER_NET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddl {

// "127.0.0.1", "::1" and the rest of the loopback range; not names.
bool IsLoopbackLiteral(const std::string& host);
// An IPv4 or IPv6 address in numbers.
bool IsAddressLiteral(const std::string& host);
// "localhost" and the names below it (RFC 6761).
bool IsLocalhostName(const std::string& host);

struct SocketAddress {
  sockaddr_storage storage;
  socklen_t length;
};
// In numbers, without port and scope.
std::string ToText(const SocketAddress& address);

// What a host name or an address stands for, with `port`; never empty.
// NOT_FOUND: it cannot be resolved; the message says why.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, std::uint16_t port);

enum class Owner : std::uint8_t {
  kAnother,
  kThisHost,
  kLoopback,  // this host, but only by a loopback address
};
// Whose the addresses are: this host's if one of them is.
Owner OwnerOf(const std::vector<SocketAddress>& addresses);

// The local address from which packets to `host`, which was resolved to
// `addresses`, leave: by a connected UDP socket, which sends nothing. Of several
// that are reached from different addresses here, the way that answers to a TCP
// connection counts; that may take a second. Where it is a loopback address
// though `host` is not written as one (the host's name maps to 127.0.1.1, and
// this is that host), the outward address, so that peers can reach it.
// UNAVAILABLE: there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host,
                                                const std::vector<SocketAddress>& addresses);

// The address of the default route, else the first of an interface that is up
// and not of this host or this link only, else empty.
std::string OutwardAddress();

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NET_ADDRESS_H_
