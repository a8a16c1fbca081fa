// Scenario: what a run is like, drawn from its seed.
#ifndef DDLAUNCH_TESTS_SIM_SCENARIO_H_
#define DDLAUNCH_TESTS_SIM_SCENARIO_H_

#include <cstdint>

#include "agent/core/options.h"
#include "agent/plan/plan.h"
#include "tests/sim/dice.h"
#include "tests/sim/time.h"

namespace ddl::sim {

// Weights of the faults; one is drawn each time.
struct FaultWeights {
  int broken_stream = 20;
  int half_broken_stream = 8;  // one end notices much later
  int kill = 14;
  int power_cut = 4;
  int freeze = 12;
  int cut = 14;   // words of a node, in one direction or both, do not arrive
  int stall = 6;  // those of its present stream come late
  int coordinator_crash = 6;
  int coordinator_freeze = 5;
  int coordinator_cut = 3;  // from all nodes
  int user_stop = 3;
  int extra_node = 6;
  int replay = 10;  // a word of before comes again
};

struct Scenario {
  int num_jobs = 1;
  std::int32_t min_nodes = 2;  // of each job
  std::int32_t max_nodes = 2;
  int start_nodes = 2;  // that start at once; the scheduler keeps so many
  int lives = 1;        // how often a job's id is used
  std::int32_t max_restarts = 0;
  Duration join_timeout{};
  Duration last_call_timeout{};
  Duration stop_grace = std::chrono::seconds(2);
  bool pinned = false;  // some nodes ask for a --node-rank
  plan::Request plan;
  bool with_words = false;  // workers use keys, a barrier and a plan proposal
  Time faults_until{};
  Duration fault_every{};  // mean time between faults; zero: none
  FaultWeights faults;
  int worker_fails_percent = 0;
  // A larger micro-batch does not fit a device; 0: any does. Workers report that and
  // wait for a smaller one, or end.
  std::int64_t fitting_micro = 0;
  bool memory_is_reported = false;
  int unkillable_percent = 0;  // nodes whose workers do not die in time
  Duration longest_run{};      // of a round's workers
  std::int64_t drift_ppm = 0;  // clocks are that much too fast or slow, at most
  core::Options options;
};

[[nodiscard]] Scenario DrawScenario(Dice& dice);

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_SCENARIO_H_
