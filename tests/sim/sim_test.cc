// Runs the simulated world under many seeds, on every core.
//   DDL_SIM_SEED=n       only this one, with its trace
//   DDL_SIM_FIRST=n DDL_SIM_SEEDS=count
//                        these, however long it takes
//   otherwise            a fixed set, then fresh ones by the time of day, until
//                        DDL_SIM_SECONDS (60) have passed
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/base/clock.h"
#include "tests/sim/world.h"

namespace ddl::sim {
namespace {

constexpr std::uint64_t kFixedSeeds = 10'000;
constexpr std::uint64_t kDefaultSeconds = 60;
// Fresh seeds are far from the fixed ones.
constexpr std::uint64_t kFreshFrom = 1'000'000'000;
// The end of a trace says what went wrong.
constexpr std::size_t kMaxTraceBytes = 20'000;
constexpr std::size_t kMaxViolations = 20;

std::optional<std::uint64_t> FromEnvironment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional(std::strtoull(text, nullptr, 10));
}

std::string TraceOf(std::uint64_t seed) {
  World world(seed, /*trace=*/true);
  static_cast<void>(world.Run());
  return world.trace();
}

std::string EndOf(std::string text) {
  if (text.size() > kMaxTraceBytes) {
    text.erase(0, text.size() - kMaxTraceBytes);
  }
  return text;
}

// What runs of many seeds came to.
struct Outcome {
  std::uint64_t num_runs = 0;
  Tallies tallies;
  std::map<std::uint64_t, std::string> violations;  // by seed; bounded

  void Add(const Outcome& other) {
    num_runs += other.num_runs;
    tallies.Add(other.tallies);
    violations.insert(other.violations.begin(), other.violations.end());
  }
};

// Seeds from `first` on, `count` of them or until `give_up`.
Outcome RunSeeds(std::uint64_t first, std::uint64_t count, Instant give_up) {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  Outcome total;
  const auto work = [&] {
    Outcome own;
    for (std::uint64_t index = next++; index < count && MonotonicNow() < give_up; index = next++) {
      World world(first + index, /*trace=*/false);
      std::string violation = world.Run();
      ++own.num_runs;
      own.tallies.Add(world.tallies());
      if (!violation.empty() && own.violations.size() < kMaxViolations) {
        own.violations.emplace(first + index, std::move(violation));
      }
    }
    const std::lock_guard lock(mutex);
    total.Add(own);
  };
  std::vector<std::thread> threads;
  for (unsigned core = 0; core < std::max(1U, std::thread::hardware_concurrency()); ++core) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return total;
}

void Judge(const Outcome& outcome) {
  for (const auto& [seed, violation] : outcome.violations) {
    ADD_FAILURE() << violation << "\nreplay with DDL_SIM_SEED=" << seed;
  }
  if (!outcome.violations.empty()) {
    std::cout << EndOf(TraceOf(outcome.violations.begin()->first));
  }
  std::cout << outcome.num_runs << " runs\n";
  for (const auto& [what, times] : outcome.tallies.ByName()) {
    std::cout << "  " << what << ": " << times << "\n";
  }
}

// A simulator that reaches nothing proves nothing.
void ExpectEverythingWasReached(const Outcome& outcome) {
  const std::map<std::string, std::uint64_t> by_name = outcome.tallies.ByName();
  for (const char* const what : {"done: all_succeeded",
                                 "done: worker_failed",
                                 "done: restarts_exhausted",
                                 "done: stopped_by_user",
                                 "done: join_timeout",
                                 "done: plan_impossible",
                                 "rejected: job_full",
                                 "rejected: stale_incarnation",
                                 "rejected: stop_timeout",
                                 "rejected: terms_differ",
                                 "rejected: node_rank_taken",
                                 "reports of no memory",
                                 "restarts for memory",
                                 "spares",
                                 "leases passed",
                                 "lost the coordinator",
                                 "broken streams",
                                 "half broken streams",
                                 "kills",
                                 "power cuts",
                                 "freezes",
                                 "cuts",
                                 "stalls",
                                 "coordinator crashes",
                                 "coordinator freezes",
                                 "coordinator cuts",
                                 "user stops",
                                 "extra nodes",
                                 "replays"}) {
    EXPECT_TRUE(by_name.contains(what)) << what << " never happened";
  }
}

TEST(Simulation, ManySeeds_KeepEveryInvariantAndReachOneResult) {
  constexpr Instant kNoLimit = Instant::max();
  if (const auto only = FromEnvironment("DDL_SIM_SEED")) {
    std::cout << TraceOf(*only);
    Judge(RunSeeds(*only, 1, kNoLimit));
    return;
  }
  if (const auto count = FromEnvironment("DDL_SIM_SEEDS")) {
    Judge(RunSeeds(FromEnvironment("DDL_SIM_FIRST").value_or(1), *count, kNoLimit));
    return;
  }
  const Instant give_up =
      MonotonicNow() +
      std::chrono::seconds(FromEnvironment("DDL_SIM_SECONDS").value_or(kDefaultSeconds));
  Outcome outcome = RunSeeds(1, kFixedSeeds, give_up);
  if (outcome.num_runs == kFixedSeeds) {
    ExpectEverythingWasReached(outcome);
  }
  const auto time_of_day = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::uint64_t fresh =
      FromEnvironment("DDL_SIM_FIRST")
          .value_or(kFreshFrom + static_cast<std::uint64_t>(time_of_day.count()));
  std::cout << "fresh seeds from " << fresh << "\n";
  outcome.Add(RunSeeds(fresh, std::numeric_limits<std::uint64_t>::max() - fresh, give_up));
  Judge(outcome);
}

TEST(Simulation, SameSeed_SameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(TraceOf(seed), TraceOf(seed));
  }
  EXPECT_NE(TraceOf(7), TraceOf(8));
}

}  // namespace
}  // namespace ddl::sim
