// A TCP socket that listens.
#include "launcher/net/tcp_listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddl {
namespace {

// The kernel takes net.core.somaxconn where that is less.
constexpr int kBacklog = std::numeric_limits<int>::max();

absl::Status ToStatus(int error, std::uint16_t port) {
  const std::string text = absl::StrCat("TCP port ", port, ": ", std::strerror(error));
  switch (error) {
    case EADDRINUSE:
      return port == 0 ? absl::ResourceExhaustedError(text) : absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case EINVAL:  // a link-local address without its interface
      return absl::NotFoundError(text);
    default:
      return absl::ResourceExhaustedError(text);
  }
}

// NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
void SetPort(std::uint16_t port, sockaddr_storage& address) {
  // Both families keep the port at the same place, right after the family.
  reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
}

absl::StatusOr<TcpListener> Listen(SocketAddress address, std::uint16_t port) {
  SetPort(port, address.storage);
  TcpListener listener;
  listener.fd =
      UniqueFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The port of a round before, whose connections may still be closing.
  const int on = 1;
  const int off = 0;
  if (!listener.fd.valid() ||
      ::setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) {
    return ToStatus(errno, port);
  }
  if (address.storage.ss_family == AF_INET6) {
    ::setsockopt(listener.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(listener.fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
             address.length) != 0 ||
      ::listen(listener.fd.get(), kBacklog) != 0) {
    return ToStatus(errno, port);
  }
  SocketAddress own{{}, sizeof(sockaddr_storage)};
  if (::getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) !=
      0) {
    return ToStatus(errno, port);
  }
  listener.port = ntohs(reinterpret_cast<const sockaddr_in*>(&own.storage)->sin_port);
  return listener;
}
// NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)

}  // namespace

absl::StatusOr<TcpListener> ListenOn(const std::vector<SocketAddress>& addresses,
                                     std::uint16_t port) {
  std::vector<SocketAddress> in_order = addresses;
  std::stable_partition(in_order.begin(), in_order.end(), [](const SocketAddress& address) {
    return address.storage.ss_family == AF_INET;
  });
  absl::Status status = absl::NotFoundError("no address");
  for (const SocketAddress& address : in_order) {
    auto listener = Listen(address, port);
    if (listener.ok() || !absl::IsNotFound(listener.status())) {
      return listener;
    }
    status = listener.status();
  }
  return status;
}

absl::StatusOr<TcpListener> ListenOnEveryAddress(std::uint16_t port) {
  SocketAddress any6{{}, sizeof(sockaddr_in6)};
  any6.storage.ss_family = AF_INET6;
  auto listener = Listen(any6, port);
  if (listener.ok() || absl::IsAlreadyExists(listener.status())) {
    return listener;
  }
  SocketAddress any4{{}, sizeof(sockaddr_in)};  // IPv6 may be disabled
  any4.storage.ss_family = AF_INET;
  return Listen(any4, port);
}

}  // namespace ddl
