// PortReservation: a free TCP port that stays free for the program it is meant
// for.
//
// A port that is probed and let go may be somebody else's when it is used. This
// one stays bound, not listening, with SO_REUSEADDR: the kernel gives it to
// nobody who asks for any port, and refuses it to those who bind it without
// SO_REUSEADDR, but a server that sets SO_REUSEADDR (PyTorch's TCPStore, gRPC,
// Python's servers) can bind it and listen while the reservation is held.
// Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_NET_PORT_RESERVATION_H_
#define DDLAUNCH_LAUNCHER_NET_PORT_RESERVATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"

namespace ddl {

class PortReservation {
 public:
  // On every interface. RESOURCE_EXHAUSTED: no port or descriptor is free.
  static absl::StatusOr<PortReservation> Make();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  PortReservation(UniqueFd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}

  UniqueFd fd_;
  std::uint16_t port_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NET_PORT_RESERVATION_H_
