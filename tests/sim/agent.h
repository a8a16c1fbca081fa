// Agent: a simple node of the simulated world. It does what the ordering
// contract of agent/core/rendezvous.h asks of an agent, and no more.
#ifndef DDLAUNCH_TESTS_SIM_AGENT_H_
#define DDLAUNCH_TESTS_SIM_AGENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "agent/core/types.h"

namespace ddl::core::sim {

class World;

class Agent {
 public:
  Agent(World& world, AgentConnected hello, std::int32_t place);

  // Opens a stream and says everything that is open.
  void Connect();
  void Receive(const Message& message);
  // The process is gone; nothing of it runs any more.
  void Die();
  // It stands still (SIGSTOP): it says and reads nothing until then.
  void PauseUntil(Instant until) { paused_until_ = until; }
  void OnStreamBroken();
  void StopByUser(std::int32_t signal);

  [[nodiscard]] const AgentRef& ref() const { return hello_.agent; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] bool paused() const;
  [[nodiscard]] Instant paused_until() const { return paused_until_; }
  [[nodiscard]] std::int32_t place() const { return place_; }
  // It got JobDone or Rejected.
  [[nodiscard]] bool learned() const { return done_.has_value() || rejected_.has_value(); }
  [[nodiscard]] const std::optional<JobDone>& done() const { return done_; }

  // The world's part: the stream this agent has.
  bool stream_up = false;
  std::uint64_t stream = 0;  // counts up; older ones are dead
  Instant last_up;           // when the last word sent arrives
  Instant last_down;

 private:
  enum class Workers : std::uint8_t { kNone, kStarting, kRunning, kFailed, kSucceeded };

  void Act(const RoundStart& start);
  void Act(const RoundStop& stop);
  void Act(const JobDone& done);
  void Act(const Rejected& rejected);
  void Act(const KeyValue& key);
  void Act(const BarrierDone& barrier);
  template <typename Other>
  void Act(const Other& /*other*/) {}
  void Heartbeat();
  void SayOpenWords();
  void StartWorkers();
  void RunWorkers();
  void WorkersEnd(std::int64_t round);
  void WorkersGone();
  void TellPort();
  void LeaveSoon();
  [[nodiscard]] std::string KeyOfRound() const;

  World& world_;
  const AgentConnected hello_;
  const std::int32_t place_;
  bool alive_ = true;
  Instant paused_until_;
  std::uint32_t port_ = 0;
  std::int64_t round_ = 0;  // the last it heard of
  std::int32_t node_rank_ = 0;
  Workers workers_ = Workers::kNone;
  bool barrier_reached_ = false;
  bool stopping_ = false;
  bool stopped_ = false;  // RoundStopped was sent for round_
  WorkerFailure failure_;
  std::optional<JobDone> done_;
  std::optional<Rejected> rejected_;
};

}  // namespace ddl::core::sim

#endif  // DDLAUNCH_TESTS_SIM_AGENT_H_
