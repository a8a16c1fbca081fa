// Node: one ddlaunch process on a node: the real session machine, what
// launcher/node does with it, the workers, and the supervisor that holds their
// lease. The process can stand still, while its workers run on; and die, and they
// with it.
#ifndef DDLAUNCH_TESTS_SIM_NODE_H_
#define DDLAUNCH_TESTS_SIM_NODE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/client/session.h"
#include "tests/sim/network.h"
#include "tests/sim/time.h"

namespace ddl::sim {

class World;

class Node {
 public:
  struct Place {
    NodeId id = 0;
    int job = 0;
    int place = 0;  // the machine's number in the job
    int life = 0;   // of the job, as its users count
  };
  Node(World& world, const Place& where, const core::AgentConnected& hello, const Clock& clock);

  void Start();
  void Hear(StreamId stream, core::Message message);
  void SeeEnd(StreamId stream, absl::StatusCode code);
  void OnTimer();
  void OnThaw();
  void OnWorkers(std::uint64_t what);
  void OnLease();

  // ---- faults
  void Freeze(Time until);
  // The process is gone, without goodbye. `power_cut`: nobody is told.
  void Die(bool power_cut);
  void StopByUser(std::int32_t signal);

  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] const core::AgentRef& ref() const { return ref_; }
  [[nodiscard]] const Place& where() const { return where_; }
  [[nodiscard]] const std::optional<StreamId>& stream() const { return stream_; }
  // How it ended, once it has: by JobDone or otherwise.
  [[nodiscard]] bool job_done() const { return job_done_; }

  // Since when the coordinator knows that its stream has ended; the world's note.
  Time disconnected_at = kNever;
  // It can do nothing about that: it stands still since, or did not learn of it.
  [[nodiscard]] bool IsUnaware() const;

 private:
  enum class State : std::uint8_t { kJoining, kRunning, kStopping, kLeaving };
  enum class Phase : std::uint8_t { kStarting, kRunning, kFailed };
  // What happens to the workers; with the group's number the arg of kWorkers.
  enum class Fate : std::uint8_t { kEnd, kGone };
  struct Group {
    bool alive = false;
    std::uint64_t number = 0;  // counts up
    Phase phase{};
    bool stopping = false;
    bool barrier_reached = false;
    std::optional<Instant> kill_at;  // by this process; they ignore SIGTERM
    bool unkillable = false;
    bool lease_passed = false;
  };

  [[nodiscard]] bool frozen() const;
  [[nodiscard]] Instant local() const;
  void Apply(SessionActions actions);
  void Do(OpenStream& open);
  void Do(SendEvent& send);
  void Do(const CancelStream& cancel);
  void Do(const HalfCloseStream& close);
  void Do(core::Message& message);
  void Do(const ClientNotice& /*notice*/) {}
  void Do(const ClientLost& lost);
  void NoteStreamLost();
  void Send(core::Event event);
  void Report(core::Event outcome);
  // After whatever happened: lease, workers, leaving, the next timer.
  void Settle();
  void SetTimer();

  void On(const core::Welcome& welcome);
  void On(const core::RoundStart& start);
  void On(const core::RoundStop& stop);
  void On(const core::JobDone& done);
  void On(const core::Rejected& rejected);
  void On(const core::Spare& spare);
  void On(const core::KeyValue& key);
  void On(const core::BarrierDone& barrier);
  void On(const core::PlanReply& reply);
  void On(const core::PlanChanged& changed);
  template <typename Other>
  void On(const Other& /*other*/) {}

  void StartWorkers(const core::RoundStart& start);
  void SayWords();
  void RunWorkers();
  // node_memory.cc. The plan's micro-batch is too large for this node's devices.
  [[nodiscard]] bool LacksMemory() const;
  void ReportOutOfMemory();
  void StopWorkers();
  void KillWorkers();
  void WorkersWillBeGone(Duration after);
  void NoticeFailure();
  void NoticeIdle();
  void LosePlace();
  void Finish();
  void Exit();
  [[nodiscard]] bool stops_alone() const;

  World& world_;
  const Place where_;
  const core::AgentRef ref_;
  const core::AgentConnected hello_;
  const Clock clock_;
  Session session_;

  bool alive_ = true;
  Time frozen_until_{};
  Time wakes_at_ = kNever;
  Time lease_at_ = kNever;
  Time lease_wakes_at_ = kNever;
  struct Waiting {
    StreamId stream = 0;
    std::optional<core::Message> message;  // nothing: the stream's end
    absl::StatusCode code{};
  };
  std::vector<Waiting> inbox_;
  std::optional<StreamId> stream_;  // the latest
  int attempt_ = 0;
  bool has_port_ = false;  // it told the coordinator of a master port, or will at once
  bool believes_connected_ = false;
  Time learned_at_{};  // that it is not

  State state_ = State::kJoining;
  std::int64_t round_ = 0;
  std::int32_t node_rank_ = 0;
  std::int32_t first_rank_ = 0;
  std::int64_t micro_ = 0;                          // of this round's plan; 0: none
  std::optional<core::OutOfMemory> memory_report_;  // not answered yet
  bool out_of_memory_ = false;                      // its workers ended for that
  std::optional<core::Event> outcome_;
  bool failed_ = false;
  bool parked_ = false;
  std::int32_t stop_signal_ = 0;
  std::optional<Instant> leave_without_result_at_;
  std::optional<Instant> exit_at_;
  bool finished_ = false;
  bool job_done_ = false;

  Group group_;
  bool failure_unseen_ = false;  // by this process, which stood still
  bool idle_unseen_ = false;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_NODE_H_
