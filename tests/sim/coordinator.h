// Coordinator: the process around the real core, as agent/service drives it: one
// stream an agent, timers, a store. It can stand still, and be killed and started
// again without memory.
#ifndef DDLAUNCH_TESTS_SIM_COORDINATOR_H_
#define DDLAUNCH_TESTS_SIM_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/rendezvous.h"
#include "agent/service/timer_hold.h"
#include "tests/sim/network.h"
#include "tests/sim/time.h"

namespace ddl::sim {

class World;

class Coordinator {
 public:
  explicit Coordinator(World& world) : world_(world) {}

  // Without memory of what was.
  void Start(const Clock& clock);
  void Crash();
  // It reads and does nothing until then.
  void Freeze(Time until);

  void Hear(StreamId stream, core::Event event);
  void SeeEnd(StreamId stream);
  void OnStored(std::uint64_t write);
  void OnTimer(std::uint64_t life);
  void OnThaw(std::uint64_t life);

  // Past every check of the shell: a word that the network made up.
  void Replay(const core::Event& event);

  [[nodiscard]] bool up() const { return core_ != nullptr; }
  [[nodiscard]] std::uint32_t life() const { return life_; }
  [[nodiscard]] std::size_t num_jobs() const { return up() ? core_->num_jobs() : 0; }
  [[nodiscard]] bool Knows(const std::string& job_id) const {
    return up() && core_->FindJob(job_id) != nullptr;
  }

 private:
  struct Waiting {
    StreamId stream = 0;
    std::optional<core::Event> event;  // nothing: the stream's end
    bool from_store = false;
  };
  struct Timer {
    core::TimerId id;
    Instant deadline;
  };
  struct Write {
    std::uint32_t life = 0;
    core::StoreDone done;
  };

  [[nodiscard]] bool frozen() const;
  void Handle(Waiting& waiting);
  void Step(const core::Event& event);
  void Apply(core::Persist& persist);
  void Apply(core::Reply& reply);
  void Apply(core::ArmTimer& arm);
  void Apply(const core::Explain& /*explain*/) {}
  void WakeFor(Instant deadline);
  [[nodiscard]] std::optional<Instant> NextTimer() const;

  // The stream that is a node's newest here, and whether a stream is known: the
  // last words of one that was replaced or refused are not heard.
  StreamId& CurrentOf(NodeId node);
  [[nodiscard]] bool IsKnown(StreamId stream);

  World& world_;
  Clock clock_;
  std::uint32_t life_ = 0;
  std::unique_ptr<core::Rendezvous> core_;
  std::vector<StreamId> current_;  // by node
  std::vector<Timer> timers_;
  std::optional<TimerHold> hold_;
  Time wakes_at_ = kNever;  // the agenda's next kCoordinatorTimer
  Time frozen_until_{};
  std::vector<Waiting> inbox_;
  std::vector<Write> writes_;
  Time store_free_at_{};
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_COORDINATOR_H_
