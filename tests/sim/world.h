// World: virtual time, a network, a coordinator, and the nodes' processes, with
// faults. Everything follows from one seed.
#ifndef DDLAUNCH_TESTS_SIM_WORLD_H_
#define DDLAUNCH_TESTS_SIM_WORLD_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/core/types.h"
#include "tests/golden/render.h"
#include "tests/sim/agenda.h"
#include "tests/sim/census.h"
#include "tests/sim/checker.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/dice.h"
#include "tests/sim/network.h"
#include "tests/sim/node.h"
#include "tests/sim/scenario.h"

namespace ddl::sim {

// What runs reached: shows that they differ and reach what they should.
enum class Tally : std::uint8_t {
  kDone,      // a node heard of the job's result; by reason
  kRejected,  // by reason
  kLost,      // a node lost the coordinator
  kSpare,
  kWorkerFailed,
  kOutOfMemory,
  kMemoryRestart,
  kLeasePassed,
  kRoundStart,
  kExcusedUnkillable,  // see Census
  kExcusedUnaware,
  kExcusedUnwarned,
  kBrokenStream,
  kHalfBrokenStream,
  kKill,
  kPowerCut,
  kFreeze,
  kCut,
  kStall,
  kCoordinatorCrash,
  kCoordinatorFreeze,
  kCoordinatorCut,
  kUserStop,
  kExtraNode,
  kReplay,
  kJob,  // a job's id was used to its end
  kNumTallies,
};
class Tallies {
 public:
  void Add(Tally tally, core::Reason reason = {}, std::uint64_t times = 1) {
    counts_[static_cast<std::size_t>(tally)][static_cast<std::size_t>(reason)] += times;
  }
  void Add(const Tallies& other);
  // By name: "done: all_succeeded", "kills".
  [[nodiscard]] std::map<std::string, std::uint64_t> ByName() const;

 private:
  static constexpr std::size_t kReasons = 32;
  std::array<std::array<std::uint64_t, kReasons>, static_cast<std::size_t>(Tally::kNumTallies)>
      counts_{};
};

class World final : private NetworkEnds {
 public:
  World(std::uint64_t seed, bool trace);

  // Runs to the end. Empty: all invariants held and every node learned how it
  // ended. Else what went wrong.
  std::string Run();
  [[nodiscard]] const std::string& trace() const { return trace_; }
  [[nodiscard]] const Tallies& tallies() const { return tallies_; }

  // ---- for its parts
  [[nodiscard]] const Time& now() const { return now_; }
  Dice& dice() { return dice_; }
  Network& network() { return network_; }
  Checker& checker() { return checker_; }
  Census& census() { return census_; }
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] bool faulty() const { return now_ < scenario_.faults_until; }
  [[nodiscard]] const core::AgentRef& RefOf(NodeId node) const { return nodes_[node].ref(); }
  void At(Time at, What what, std::uint32_t who, std::uint64_t arg) {
    agenda_.At(at, what, who, arg);
  }
  std::uint16_t NextPort() { return next_port_++; }
  // The coordinator welcomes a node, or sees its stream end.
  void NoteConnected(NodeId node) { nodes_[node].disconnected_at = kNever; }
  void NoteDisconnected(NodeId node) { nodes_[node].disconnected_at = now_; }
  void WorkersBegin(const Node& node, const core::RoundStart& start);
  void Fail(const std::string& what) { checker_.Fail(what); }
  void Count(Tally tally, core::Reason reason = {}) { tallies_.Add(tally, reason); }
  // `text`: a function, called when there is a trace to write.
  template <typename Text>
  void Trace(Text text) {
    if (tracing_) {
      absl::StrAppend(&trace_, core::Render(now_), "  ", text(), "\n");
    }
  }

 private:
  // A job as its users see it.
  struct JobUse {
    int life = 1;       // counts up each time that its id is used
    bool over = false;  // every life
  };

  void CoordinatorHears(StreamId stream, core::Event event) override;
  void CoordinatorSeesEnd(StreamId stream) override { coordinator_.SeeEnd(stream); }
  void NodeHears(NodeId node, StreamId stream, core::Message message) override;
  void NodeSeesEnd(NodeId node, StreamId stream, absl::StatusCode code) override {
    nodes_[node].SeeEnd(stream, code);
  }

  Clock DrawClock();
  void Do(const Entry& entry);
  void Spawn(int job, int place);
  core::AgentConnected MakeHello(int job, int place);
  void Scheduler();
  void ScheduleFault();
  [[nodiscard]] std::string Finish() const;

  // ---- faults.cc
  void InjectFault();
  void BreakAStream();
  void HalfBreakAStream();
  void StallAStream();
  void KillANode();
  void CutPower();
  void FreezeANode();
  void CutANode();
  void StopANode();
  void StartAnExtraNode();
  void CrashCoordinator();
  void FreezeCoordinator();
  void CutCoordinator();
  void ReplayAWord();
  void BreakStreamOf(const Node& node, Duration coordinator_notices, Duration node_notices);
  // A node that is alive, counted and traced as what happens to it; null: none.
  Node* DrawVictim(Tally tally, const char* what);
  // How soon a broken stream is noticed, usually.
  [[nodiscard]] Duration DrawPrompt();
  // When a fault that begins now is over.
  [[nodiscard]] Time DrawEnd();

  Dice dice_;
  const Scenario scenario_;
  bool tracing_;
  Time now_{};
  Agenda agenda_;
  Network network_;
  Checker checker_;
  Census census_;
  Coordinator coordinator_;
  std::deque<Node> nodes_;
  std::vector<JobUse> jobs_;
  std::vector<core::Event> heard_;  // words to replay; bounded
  std::uint16_t next_port_ = 20'000;
  std::string trace_;
  Tallies tallies_;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_WORLD_H_
