// One address or all; what is in use or not here is told apart.
#include "launcher/net/tcp_listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace ddl {
namespace {

TEST(ListenOn, FreePort_AcceptsAtOnce) {
  const auto addresses = Resolve("127.0.0.1", 0);
  ASSERT_TRUE(addresses.ok());
  const auto listener = ListenOn(*addresses, 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_NE(listener->port, 0);
  const auto there = Resolve("127.0.0.1", listener->port);
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&there->front().storage),
                      there->front().length),
            0);
}

TEST(ListenOn, PortInUse_IsAlreadyExists) {
  const auto addresses = Resolve("127.0.0.1", 0);
  const auto first = ListenOn(*addresses, 0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsAlreadyExists(ListenOn(*addresses, first->port).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(ListenOnEveryAddress(first->port).status()));
}

TEST(ListenOn, AddressOfAnotherHost_IsNotFound) {
  const auto addresses = Resolve("192.0.2.1", 0);  // RFC 5737
  ASSERT_TRUE(addresses.ok());
  EXPECT_TRUE(absl::IsNotFound(ListenOn(*addresses, 0).status()));
  EXPECT_TRUE(absl::IsNotFound(ListenOn({}, 0).status()));
}

TEST(ListenOn, NameWithSeveralAddresses_TakesTheFirstThatIsHere) {
  auto addresses = *Resolve("192.0.2.1", 0);
  addresses.push_back(Resolve("127.0.0.1", 0)->front());
  EXPECT_TRUE(ListenOn(addresses, 0).ok());
}

TEST(ListenOnEveryAddress, FreePort_IsFound) {
  const auto listener = ListenOnEveryAddress(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_NE(listener->port, 0);
}

}  // namespace
}  // namespace ddl
