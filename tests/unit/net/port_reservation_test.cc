// A reserved port: closed to strangers, open to the server it is meant for.
#include "launcher/net/port_reservation.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>
#include <vector>

#include "agent/base/unique_fd.h"

namespace ddl {
namespace {

// Listens on every IPv4 interface; false when the port is refused.
bool CanListen(std::uint16_t port, bool reuse_address) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse_address ? 1 : 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
         ::listen(fd.get(), 1) == 0;
}

TEST(PortReservation, ServerWithReuseAddress_CanListen) {
  const auto reservation = PortReservation::Make();
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  EXPECT_TRUE(CanListen(reservation->port(), /*reuse_address=*/true));
}

TEST(PortReservation, StrangerWithoutReuseAddress_IsRefused) {
  const auto reservation = PortReservation::Make();
  ASSERT_TRUE(reservation.ok());
  EXPECT_FALSE(CanListen(reservation->port(), /*reuse_address=*/false));
}

TEST(PortReservation, ManyAtOnce_AllDifferent) {
  std::vector<PortReservation> held;
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 100; ++i) {
    auto reservation = PortReservation::Make();
    ASSERT_TRUE(reservation.ok());
    ports.insert(reservation->port());
    held.push_back(*std::move(reservation));
  }
  EXPECT_EQ(ports.size(), held.size());
}

}  // namespace
}  // namespace ddl
