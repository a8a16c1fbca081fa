// What a run is like.
#include "tests/sim/scenario.h"

#include <algorithm>

namespace ddl::sim {
namespace {

// Clocks in the field are off by less than 100 ppm. The times by which agents
// and coordinator judge are made for a thousand times as much.
constexpr std::int64_t kMaxDriftPpm = 100'000;

void DrawSize(Dice& dice, Scenario& scenario) {
  constexpr int kUsual = 4;
  constexpr int kLarge = 12;
  scenario.max_nodes = dice.Chance(93) ? dice.Int(1, kUsual) : dice.Int(kUsual + 1, kLarge);
  scenario.min_nodes = scenario.max_nodes;
  if (dice.Chance(55)) {
    scenario.min_nodes = dice.Int(1, scenario.max_nodes);
  }
  scenario.start_nodes = dice.Int(scenario.min_nodes, scenario.max_nodes);
  if (dice.Chance(15)) {
    scenario.start_nodes = scenario.max_nodes + dice.Int(1, 2);  // spares
  }
}

void DrawFaults(Dice& dice, Scenario& scenario) {
  if (dice.Chance(5)) {
    return;
  }
  scenario.faults_until = dice.Ms(2'000, 20'000);
  scenario.fault_every = dice.Ms(100, 4'000);
  FaultWeights& faults = scenario.faults;
  if (dice.Chance(60)) {
    faults.coordinator_crash = 0;
  }
  if (dice.Chance(50)) {
    faults.half_broken_stream = 0;
  }
  if (dice.Chance(70)) {
    faults.user_stop = 0;
  }
}

}  // namespace

Scenario DrawScenario(Dice& dice) {
  Scenario scenario;
  scenario.num_jobs = dice.Chance(12) ? 2 : 1;
  DrawSize(dice, scenario);
  scenario.lives = dice.Chance(25) ? dice.Int(2, 3) : 1;
  scenario.max_restarts = dice.Int(0, 3);
  scenario.join_timeout = dice.Chance(80) ? dice.Ms(15'000, 40'000) : dice.Ms(1'000, 8'000);
  scenario.last_call_timeout = dice.Chance(50) ? dice.Ms(0, 1'000) : dice.Ms(1'000, 6'000);
  scenario.stop_grace = dice.Ms(200, 2'000);
  scenario.pinned = dice.Chance(25);
  if (dice.Chance(20)) {
    scenario.plan.micro_batch_size = 4;
  } else if (dice.Chance(8)) {
    scenario.plan.global_batch_size = 12;  // not every world can share it
    if (scenario.max_restarts % 2 == 0) {
      scenario.plan.batch_policy = plan::BatchPolicy::kFail;
    }
  }
  if (dice.Chance(50)) {
    scenario.plan.batch_policy =
        dice.Chance(50) ? plan::BatchPolicy::kFail : plan::BatchPolicy::kNearest;
  }
  scenario.with_words = dice.Chance(40);
  if (dice.Chance(50)) {
    scenario.fitting_micro = dice.Int(1, 4);
    scenario.memory_is_reported = dice.Chance(50);
    if (dice.Chance(30)) {
      scenario.plan.min_micro_batch_size = dice.Int(1, 3);
    }
  }
  DrawFaults(dice, scenario);
  scenario.worker_fails_percent = dice.Chance(60) ? dice.Int(0, 30) : 0;
  scenario.unkillable_percent = dice.Chance(10) ? 20 : 0;
  scenario.longest_run = dice.Ms(500, 9'000);
  scenario.drift_ppm = dice.Chance(70) ? dice.Between(0, kMaxDriftPpm) : 0;
  scenario.options.broken_stream_proves_nothing = dice.Chance(50);
  if (dice.Chance(50)) {
    scenario.options.hold_after_start = scenario.options.heartbeat_timeout;
  }
  scenario.options.forget_after = std::chrono::seconds(10);
  return scenario;
}

}  // namespace ddl::sim
