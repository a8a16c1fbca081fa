// TestAgent: a real RendezvousClient with a loop that waits for what a test
// expects. Each wait is bounded, and fails the test when the time is up.
#ifndef DDLAUNCH_TESTS_SUPPORT_TEST_AGENT_H_
#define DDLAUNCH_TESTS_SUPPORT_TEST_AGENT_H_

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/base/ids.h"
#include "agent/client/rendezvous_client.h"
#include "agent/service/coordinator.h"
#include "agent/store/memory_store.h"

namespace ddl {

// One server that is never taken down: gRPC 1.51 aborts now and then when the
// last of a process goes while another starts, as happens only between tests.
inline void KeepGrpcUp() {
  static const Coordinator* const keeper =
      Coordinator::Start(Coordinator::Options(), std::make_unique<store::MemoryStore>())->release();
  EXPECT_NE(keeper, nullptr);
}

inline std::unique_ptr<Coordinator> StartCoordinator(Coordinator::Options options) {
  KeepGrpcUp();
  auto coordinator = Coordinator::Start(std::move(options), std::make_unique<store::MemoryStore>());
  EXPECT_TRUE(coordinator.ok()) << coordinator.status();
  return *std::move(coordinator);
}
inline std::unique_ptr<Coordinator> StartCoordinator(const core::Options& core_options = {}) {
  Coordinator::Options options;
  options.core = core_options;
  return StartCoordinator(std::move(options));
}

inline constexpr std::uint16_t kMasterPort = 4321;

inline core::AgentConnected SomeHello(const std::string& host, int num_nodes = 2, int nproc = 2) {
  core::AgentConnected hello;
  hello.agent = {"job", NewRandomId()};
  hello.host = host;
  hello.address = "127.0.0.1";
  hello.nproc = nproc;
  hello.min_nodes = num_nodes;
  hello.max_nodes = num_nodes;
  hello.join_timeout = std::chrono::seconds(30);
  hello.stop_grace = std::chrono::seconds(1);
  hello.master_port = kMasterPort;
  return hello;
}

class TestAgent {
 public:
  TestAgent(std::uint16_t port, const core::AgentConnected& hello, const std::string& token = "")
      : TestAgent(absl::StrCat("127.0.0.1:", port), hello, token) {}
  TestAgent(const std::string& endpoint, const core::AgentConnected& hello,
            const std::string& token = "")
      : client_(RendezvousClient::NewChannel(endpoint),
                {.endpoint = endpoint,
                 .hello = hello,
                 .connect_timeout = hello.join_timeout,
                 .token = token},
                MonotonicNow()) {}

  RendezvousClient& client() { return client_; }

  // The next message of type T; what else comes before it is dropped, except
  // that a ClientLost ends the wait. `also` runs on each turn (a gateway).
  template <typename T>
  std::optional<T> WaitFor() {
    const Instant give_up = MonotonicNow() + std::chrono::seconds(20);
    while (MonotonicNow() < give_up) {
      Turn();
      while (!events_.empty()) {
        const ClientEvent event = std::move(events_.front());
        events_.pop_front();
        if (auto found = As<T>(event); found.has_value()) {
          return found;
        }
      }
    }
    ADD_FAILURE() << "no such message came in 20 s";
    return std::nullopt;
  }

  // Runs the loop until `done`.
  void RunUntil(const std::function<bool()>& done) {
    const Instant give_up = MonotonicNow() + std::chrono::seconds(20);
    while (!done()) {
      if (MonotonicNow() > give_up) {
        ADD_FAILURE() << "it did not happen in 20 s";
        return;
      }
      Turn();
    }
  }

  // Told of each message as it comes, before any WaitFor.
  std::function<void(const core::Message&)> on_message;
  std::function<void()> each_turn;

 private:
  template <typename T>
  static std::optional<T> As(const ClientEvent& event) {
    if constexpr (std::is_same_v<T, ClientLost> || std::is_same_v<T, ClientNotice>) {
      const auto* found = std::get_if<T>(&event);
      return found == nullptr ? std::nullopt : std::optional(*found);
    } else {
      const auto* message = std::get_if<core::Message>(&event);
      const T* found = message == nullptr ? nullptr : std::get_if<T>(message);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
  }

  void Turn() {
    constexpr int kTurnMs = 10;
    pollfd entry{client_.poll_fd(), POLLIN, 0};
    ::poll(&entry, 1, kTurnMs);
    for (ClientEvent& event : client_.OnReady(MonotonicNow())) {
      if (const auto* message = std::get_if<core::Message>(&event);
          message != nullptr && on_message) {
        on_message(*message);
      }
      events_.push_back(std::move(event));
    }
    if (each_turn) {
      each_turn();
    }
  }

  RendezvousClient client_;
  std::deque<ClientEvent> events_;
};

}  // namespace ddl

#endif  // DDLAUNCH_TESTS_SUPPORT_TEST_AGENT_H_
