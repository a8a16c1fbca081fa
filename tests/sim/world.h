// World: virtual time, a network of ordered streams that break, a slow store,
// the core, and the agents' processes. Everything follows from one seed.
#ifndef DDLAUNCH_TESTS_SIM_WORLD_H_
#define DDLAUNCH_TESTS_SIM_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "agent/core/rendezvous.h"
#include "agent/core/types.h"
#include "tests/sim/agent.h"
#include "tests/sim/checker.h"

namespace ddl::core::sim {

// Seeded choices; the same on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  // lowest..highest
  std::int64_t Between(std::int64_t lowest, std::int64_t highest) {
    const auto span = static_cast<std::uint64_t>(highest - lowest) + 1;
    return lowest + static_cast<std::int64_t>(engine_() % span);
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }
  Duration Ms(std::int64_t lowest, std::int64_t highest) {
    return std::chrono::milliseconds(Between(lowest, highest));
  }

 private:
  std::mt19937_64 engine_;
};

// What a run is like; drawn from its seed.
struct Scenario {
  std::int32_t num_jobs = 1;
  std::int32_t num_nodes = 2;  // of each job
  std::int32_t max_restarts = 0;
  Duration join_timeout{};
  bool pinned = false;  // some nodes ask for a --node-rank
  bool with_plan = false;
  Duration faults_until{};
  Duration fault_every{};  // mean time between faults; zero: none
  int worker_fails_percent = 0;
  int stuck_percent = 0;  // nodes that do not stop in time
};

class World {
 public:
  World(std::uint64_t seed, bool trace);

  // Runs to the end. Empty: all invariants held and every agent learned a
  // result. Else what went wrong.
  std::string Run();
  [[nodiscard]] const std::string& trace() const { return trace_text_; }
  // Shows that runs differ and reach what they should.
  [[nodiscard]] const std::map<std::string, int>& counts() const { return counts_; }

  // ---- for the agents
  [[nodiscard]] Instant now() const { return now_; }
  Dice& dice() { return dice_; }
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] bool faulty() const { return now_.time_since_epoch() < scenario_.faults_until; }
  void After(Duration delay, std::function<void()> action);
  // On the agent's stream, in order. Lost if the stream breaks meanwhile.
  void Send(Agent& agent, Event event);
  // Its stream ends without goodbye, and whatever is on it is lost.
  void BreakStream(Agent& agent, bool core_notices);
  void Fail(const std::string& what) { checker_.Fail(what); }
  void Count(const std::string& what) { ++counts_[what]; }
  void Log(const std::string& line);

 private:
  struct Action {
    Instant at;
    int order = 0;  // words before timers
    std::uint64_t sequence = 0;
    std::function<void()> run;
    bool operator>(const Action& other) const {
      return std::tie(at, order, sequence) > std::tie(other.at, other.order, other.sequence);
    }
  };

  static Scenario Draw(Dice& dice);
  void At(Instant at, int order, std::function<void()> action);
  void Step(const Event& event);
  void Deliver(const Reply& reply);
  void ArmTimerOf(const ArmTimer& arm);
  void AnswerStore(const Persist& persist);
  void Spawn(std::int32_t job, std::int32_t place);
  void MakeHello(AgentConnected& hello, std::int32_t job, std::int32_t place);
  void ScheduleFault();
  void InjectFault();
  void Replay();
  void Kill(Agent& agent);
  // Starts nodes anew where one is missing, as a scheduler would.
  void Janitor();
  [[nodiscard]] std::size_t NumAlive() const;
  [[nodiscard]] std::string Finish() const;

  Dice dice_;
  const Scenario scenario_;
  const Options options_;
  Rendezvous rendezvous_{options_};
  Checker checker_{options_};
  Instant now_{};
  std::uint64_t num_actions_ = 0;
  std::priority_queue<Action, std::vector<Action>, std::greater<>> actions_;
  std::map<TimerId, std::uint64_t> timers_;  // its latest arming
  std::uint64_t num_arms_ = 0;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<AgentRef, Agent*> by_ref_;
  std::vector<Event> heard_;  // words to replay; bounded
  Instant store_free_at_;
  bool tracing_;
  std::string trace_text_;
  std::map<std::string, int> counts_;
};

}  // namespace ddl::core::sim

#endif  // DDLAUNCH_TESTS_SIM_WORLD_H_
