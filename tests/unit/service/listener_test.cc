// The coordinator's port: what can be listened on, and what comes there.
#include "agent/service/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace ddl {
namespace {

using testing::HasSubstr;

std::unique_ptr<Listener> Open(const std::string& host) {
  auto listener = Listener::Open(host, 0);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return listener.ok() ? *std::move(listener) : nullptr;
}

UniqueFd ConnectTo(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(Listener, FreePorts_AreDifferent) {
  const auto first = Open("127.0.0.1");
  const auto second = Open("127.0.0.1");
  EXPECT_NE(first->port(), 0);
  EXPECT_NE(first->port(), second->port());
}

TEST(Listener, PortThatIsTaken_IsAlreadyExists) {
  for (const auto& [first, second] : {std::pair("127.0.0.1", "127.0.0.1"),
                                      std::pair("127.0.0.1", "::"), std::pair("::", "127.0.0.1")}) {
    const auto taken = Open(first);
    const auto other = Listener::Open(second, taken->port());
    EXPECT_TRUE(absl::IsAlreadyExists(other.status())) << first << " " << second;
    EXPECT_THAT(std::string(other.status().message()), HasSubstr("the port is taken"));
  }
}

TEST(Listener, AddressOfAnotherHost_IsUnavailable) {
  const auto other = Listener::Open("192.0.2.1", 0);
  EXPECT_TRUE(absl::IsUnavailable(other.status())) << other.status();
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("no address of this host"));
  EXPECT_TRUE(absl::IsUnavailable(Listener::Open("no-such-host.invalid", 0).status()));
}

TEST(Listener, Connections_AreHandedOverUntilItStops) {
  const auto listener = Open("::");
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<UniqueFd> taken;  // guarded by mutex
  listener->Start(
      [&](int /*listening*/, UniqueFd connection) {
        const std::lock_guard lock(mutex);
        taken.push_back(std::move(connection));
        changed.notify_all();
      },
      nullptr);
  const UniqueFd first = ConnectTo(listener->port());  // IPv4 at "::"
  const UniqueFd second = ConnectTo(listener->port());
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(
        changed.wait_for(lock, std::chrono::seconds(20), [&] { return taken.size() == 2; }));
  }
  const std::uint16_t port = listener->port();
  listener->Stop();
  EXPECT_TRUE(Listener::Open("::", port).ok()) << "it is free again";
}

}  // namespace
}  // namespace ddl
