// Runs the simulated world under many seeds.
//   DDL_SIM_SEED=n      only this one, with its trace on failure
//   DDL_SIM_SEEDS=count so many, from 1
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "tests/sim/world.h"

namespace ddl::core::sim {
namespace {

constexpr std::uint64_t kDefaultSeeds = 2'000;
// The end of a trace says what went wrong.
constexpr std::size_t kMaxTraceBytes = 200'000;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string TraceOf(std::uint64_t seed) {
  World world(seed, /*trace=*/true);
  static_cast<void>(world.Run());
  std::string trace = world.trace();
  if (trace.size() > kMaxTraceBytes) {
    trace.erase(0, trace.size() - kMaxTraceBytes);
  }
  return trace;
}

TEST(CoreSim, ManySeeds_KeepEveryInvariantAndReachOneResult) {
  const std::uint64_t only = FromEnvironment("DDL_SIM_SEED", 0);
  const std::uint64_t first = only == 0 ? 1 : only;
  const std::uint64_t count = only == 0 ? FromEnvironment("DDL_SIM_SEEDS", kDefaultSeeds) : 1;
  std::map<std::string, int> counts;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    World world(seed, /*trace=*/false);
    const std::string violation = world.Run();
    ASSERT_EQ(violation, "") << "replay with DDL_SIM_SEED=" << seed << "\n"
                             << (only == 0 ? std::string() : TraceOf(seed));
    for (const auto& [what, times] : world.counts()) {
      counts[what] += times;
    }
  }
  for (const auto& [what, times] : counts) {
    std::cout << what << ": " << times << "\n";
  }
  if (only != 0 || count < kDefaultSeeds) {
    return;
  }
  // A simulator that reaches nothing proves nothing.
  for (const char* what :
       {"done: all_succeeded", "done: worker_failed", "done: restarts_exhausted",
        "done: stopped_by_user", "done: join_timeout", "rejected: job_full",
        "rejected: stale_incarnation", "rejected: stop_timeout", "rejected: terms_differ",
        "rejected: node_rank_taken", "rejected: job_ended", "power cuts", "pauses", "stalls",
        "replays", "surplus nodes"}) {
    EXPECT_GT(counts[what], 0) << what << " never happened";
  }
}

TEST(CoreSim, SameSeed_SameRun) {
  EXPECT_EQ(TraceOf(7), TraceOf(7));
  EXPECT_NE(TraceOf(7), TraceOf(8));
}

}  // namespace
}  // namespace ddl::core::sim
