// The server over real sockets: slow readers, garbage, floods, the end.
#include "launcher/tcpstore/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "tests/unit/tcpstore/bytes.h"

namespace ddl::tcpstore {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kWait{30};  // for what should take far less

class ServerTest : public ::testing::Test {
 protected:
  void Serve(const Limits& limits = {}) {
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof own;
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&own), length), 0);
    ASSERT_EQ(::listen(listener.get(), 1'000), 0);
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
    address_ = own;
    auto server = StoreServer::Start(
        std::move(listener), {.limits = limits, .say = [this](bool is_warning, const auto& text) {
                                const std::lock_guard lock(mutex_);
                                said_.push_back((is_warning ? "warning: " : "") + text);
                              }});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  UniqueFd Connect() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(fd.valid()) << std::strerror(errno);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_),
              0);
    return fd;
  }
  static void Send(const UniqueFd& fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0) << std::strerror(errno);
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // Fewer bytes when the connection ended first.
  static std::string Receive(const UniqueFd& fd, std::size_t size) {
    std::string bytes(size, '\0');
    std::size_t got = 0;
    while (got < size) {
      pollfd readable{fd.get(), POLLIN, 0};
      if (::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(kWait).count())) != 1) {
        ADD_FAILURE() << "nothing came";
        break;
      }
      const ssize_t count = ::recv(fd.get(), bytes.data() + got, size - got, 0);
      if (count <= 0) {
        break;
      }
      got += static_cast<std::size_t>(count);
    }
    bytes.resize(got);
    return bytes;
  }
  static bool IsClosed(const UniqueFd& fd) { return Receive(fd, 1).empty(); }
  std::string Ask(const UniqueFd& fd, std::string_view bytes, std::size_t reply) {
    Send(fd, bytes);
    return Receive(fd, reply);
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  sockaddr_in address_{};
  std::mutex mutex_;
  std::vector<std::string> said_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(ServerTest, BothDialects_ShareOneTable) {
  Serve();
  const UniqueFd bare = Connect();
  const UniqueFd validated = Connect();
  EXPECT_EQ(Ask(bare, Byte(0) + Text("k") + Text("v") + Byte(6), 8), I64(1));
  EXPECT_EQ(Ask(validated, Opening() + Byte(13) + U32(5) + Byte(3) + Text("k"), 13),
            U32(5) + Text("v"));
}

TEST_F(ServerTest, Wait_IsAnsweredByAnothersSet_AlsoAfterTheWaiterHasGone) {
  Serve();
  const UniqueFd waiter = Connect();
  UniqueFd leaver = Connect();
  const UniqueFd setter = Connect();
  Send(waiter, Opening() + Byte(6) + I64(1) + Text("k"));
  // The reply says that the wait before it has come to the server.
  EXPECT_EQ(Ask(leaver, Opening() + Byte(13) + U32(1) + Byte(6) + I64(1) + Text("k"), 4), U32(1));
  leaver.reset();
  Send(setter, Opening() + Byte(1) + Text("k") + Text(""));
  EXPECT_EQ(Receive(waiter, 1), Byte(0));
}

TEST_F(ServerTest, Garbage_ClosesThatConnectionOnly) {
  Serve();
  const UniqueFd client = Connect();
  EXPECT_EQ(Ask(client, Opening() + Byte(7), 8), I64(0));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5, '\0') + std::string(20, '\xff'),
        Opening() + Byte(99), Byte(5) + I64(1'000'000'000)}) {
    const UniqueFd stranger = Connect();
    Send(stranger, bytes);
    EXPECT_TRUE(IsClosed(stranger));
  }
  EXPECT_EQ(Ask(client, Byte(7), 8), I64(0));
  EXPECT_THAT(said(), Contains(HasSubstr("operation 71 is not known")));
}

TEST_F(ServerTest, OneWhoDoesNotRead_HoldsUpNobody_AndGetsAllInTheEnd) {
  Limits limits;
  limits.max_unread_bytes = 64 * kKib;
  Serve(limits);
  const UniqueFd client = Connect();
  const UniqueFd slow = Connect();
  constexpr std::size_t kValue = 8 * kMib;
  constexpr int kGets = 8;
  Send(client, Opening() + Byte(1) + Text("large") + Text(std::string(kValue, 'x')));
  ASSERT_EQ(Ask(client, Byte(7), 8), I64(1));
  std::string gets;
  for (int i = 0; i < kGets; ++i) {
    gets += Byte(3) + Text("large");
  }
  Send(slow, Opening() + gets + Byte(7));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Ask(client, Byte(4) + Text("n") + I64(1), 8), I64(i + 1));
  }
  for (int i = 0; i < kGets; ++i) {
    ASSERT_EQ(Receive(slow, 8 + kValue).size(), 8 + kValue);
  }
  EXPECT_EQ(Receive(slow, 8), I64(2));
}

TEST_F(ServerTest, TooMuchUnread_ClosesTheOneWhoHoldsIt) {
  Limits limits;
  limits.max_buffered_bytes = 16 * kMib;
  limits.max_connections = 64;
  Serve(limits);
  const UniqueFd client = Connect();
  const UniqueFd slow = Connect();
  constexpr std::size_t kValue = 32 * kMib;
  Send(client, Opening() + Byte(1) + Text("large") + Text(std::string(kMib, 'x')));
  EXPECT_EQ(Ask(client, Byte(7), 8), I64(1));
  // A request that is never whole.
  Send(slow, Opening() + Byte(1) + Text("k") + I64(kValue));
  const std::string piece(kMib, 'y');
  bool is_closed = false;
  for (int i = 0; i < 31 && !is_closed; ++i) {
    is_closed = ::send(slow.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0;
  }
  EXPECT_TRUE(is_closed || IsClosed(slow));
  EXPECT_EQ(Ask(client, Byte(7), 8), I64(1));
  EXPECT_THAT(said(), Contains(HasSubstr("warning: a connection to PyTorch's store was closed")));
}

TEST_F(ServerTest, TooManyConnections_WaitUntilOthersLeave) {
  Limits limits;
  limits.max_connections = 3;
  Serve(limits);
  std::vector<UniqueFd> first;
  for (int i = 0; i < 3; ++i) {
    first.push_back(Connect());
    EXPECT_EQ(Ask(first.back(), Opening() + Byte(13) + U32(1), 4), U32(1));
  }
  const UniqueFd waiting = Connect();
  Send(waiting, Opening() + Byte(13) + U32(2));
  EXPECT_EQ(Ask(first[0], Byte(13) + U32(3), 4), U32(3));
  first.pop_back();
  EXPECT_EQ(Receive(waiting, 4), U32(2));
  EXPECT_THAT(said(), Contains(HasSubstr("3 connections are open")));
}

TEST_F(ServerTest, NoDescriptorLeft_IsSurvived) {
  Serve();
  const UniqueFd client = Connect();
  EXPECT_EQ(Ask(client, Opening() + Byte(7), 8), I64(0));
  UniqueFd waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // All that are left in this process, which is the server's too.
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  rlimit small = former;
  small.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  std::vector<UniqueFd> hoard;
  while (true) {
    UniqueFd fd(::dup(client.get()));
    if (!fd.valid()) {
      break;
    }
    hoard.push_back(std::move(fd));
  }
  EXPECT_EQ(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_),
            0);
  Send(waiting, Opening() + Byte(13) + U32(9));
  EXPECT_EQ(Ask(client, Byte(7), 8), I64(0));
  hoard.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_EQ(Receive(waiting, 4), U32(9));
}

TEST_F(ServerTest, Barrier_OfAThousand_IsLeftByAll) {
  Serve();
  constexpr int kClients = 1'000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 3 * kClients) {
    GTEST_SKIP() << "only " << limit.rlim_cur << " open files";
  }
  std::vector<UniqueFd> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(Connect());
    EXPECT_EQ(Ask(clients.back(),
                  Opening() + Byte(4) + Text("here") + I64(1) + Byte(6) + I64(1) + Text("go"), 8),
              I64(i + 1));
  }
  Send(clients[0], Byte(12) + Byte(1) + Text("go") + Text(""));
  EXPECT_EQ(Receive(clients[0], 1), Byte(1));
  for (int i = 1; i < kClients; ++i) {
    EXPECT_EQ(Receive(clients[static_cast<std::size_t>(i)], 1), Byte(0));
  }
}

TEST_F(ServerTest, End_ClosesEveryConnection) {
  Serve();
  const UniqueFd waiter = Connect();
  const UniqueFd idle = Connect();
  EXPECT_EQ(Ask(waiter, Opening() + Byte(13) + U32(1) + Byte(6) + I64(1) + Text("k"), 4), U32(1));
  server_.reset();
  EXPECT_TRUE(IsClosed(waiter));
  EXPECT_TRUE(IsClosed(idle));
  const UniqueFd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(::connect(late.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_),
            0);
  EXPECT_THAT(said(), IsEmpty());
}

}  // namespace
}  // namespace ddl::tcpstore
