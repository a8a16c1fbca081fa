// A free TCP port, held.
#include "launcher/net/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/descriptor_limit.h"

namespace ddl {
namespace {

// NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
bool BindAny(int fd, int family) {
  if (family == AF_INET6) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

std::uint16_t BoundPort(int fd) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return 0;
  }
  // Both families keep the port at the same place, right after the family.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}
// NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)

}  // namespace

absl::StatusOr<PortReservation> PortReservation::Make() {
  // IPv6 any covers IPv4 too (dual stack); IPv4 alone where IPv6 is disabled.
  for (const int family : {AF_INET6, AF_INET}) {
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd.valid() && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        BindAny(fd.get(), family)) {
      if (const std::uint16_t port = BoundPort(fd.get()); port != 0) {
        return PortReservation(std::move(fd), port);
      }
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no free TCP port for the workers: ", std::strerror(errno),
                   errno == EMFILE ? absl::StrCat("; ", DescriptorLimitText()) : ""));
}

}  // namespace ddl
