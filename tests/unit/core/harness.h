// Harness: drives a Rendezvous by hand, one event at a time, with time that
// moves only when told to. The store answers at once unless held.
#ifndef DDLAUNCH_TESTS_UNIT_CORE_HARNESS_H_
#define DDLAUNCH_TESTS_UNIT_CORE_HARNESS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/job.h"
#include "agent/core/rendezvous.h"
#include "agent/core/types.h"

namespace ddl::core {

inline constexpr Duration kSecond = std::chrono::seconds(1);
inline constexpr char kJob[] = "j";

class Harness : public ::testing::Test {
 protected:
  explicit Harness(Options options = {}) : options_(std::move(options)) {}
  // A Hello of a fixed-size job: host "host-<name>", 2 workers, 60 s to join.
  static AgentConnected Hello(const std::string& name, std::int32_t nodes,
                              std::int32_t max_restarts = 0);

  // Gives the event to the core and carries out its effects: replies are kept
  // by agent, timers armed, and the store answered (unless held).
  void Give(const Event& event);
  // Hello and, on the same stream, a master port.
  void Connect(const AgentConnected& hello);
  // Hands out time, firing what comes due, in order.
  void Pass(Duration duration);
  // The same, while these agents send heartbeats.
  void PassAlive(Duration duration, const std::vector<std::string>& names);

  // `count` agents "a", "b", ... that have started round 1.
  void StartJob(std::int32_t count, std::int32_t max_restarts = 0);
  void Fail(const std::string& name, std::int64_t round, std::int32_t exit_code,
            std::int32_t term_signal = 0);
  void Succeed(const std::string& name, std::int64_t round);
  void Stopped(const std::string& name, std::int64_t round);
  void Disconnect(const std::string& name);
  void Leave(const std::string& name);

  static AgentRef Ref(const std::string& name) { return AgentRef{kJob, name}; }
  // What the agent was told last of this kind, since the last Clear().
  template <typename M>
  std::optional<M> Told(const std::string& name) const {
    std::optional<M> last;
    for (const Reply& reply : replies_) {
      if (reply.agent.incarnation == name) {
        if (const auto* const message = std::get_if<M>(&reply.message)) {
          last = *message;
        }
      }
    }
    return last;
  }
  template <typename M>
  int TimesTold(const std::string& name) const {
    int count = 0;
    for (const Reply& reply : replies_) {
      count += reply.agent.incarnation == name && std::holds_alternative<M>(reply.message) ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] bool Said(Reason reason) const;
  // The last sentence with this reason; empty: none.
  [[nodiscard]] std::string Saying(Reason reason) const;
  void Clear();
  [[nodiscard]] Job::State StateOfJob() const;

  const Options options_;
  Rendezvous rendezvous_{options_};
  Instant now_{};
  bool hold_store_ = false;
  std::vector<Persist> persists_;
  std::vector<Reply> replies_;
  std::vector<Explain> explains_;
  std::map<TimerId, Instant> timers_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_TESTS_UNIT_CORE_HARNESS_H_
