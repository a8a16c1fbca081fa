// Words.
#include "agent/core/wording.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace ddl::core {
namespace {

TEST(NameRanks, Runs_AreJoined) {
  EXPECT_EQ(NameRanks({0, 3, 4, 5, 9}), "0, 3-5, 9");
  EXPECT_EQ(NameRanks({}), "");
}

TEST(NameRanks, TooManyRuns_SaysHowManyAreLeft) {
  std::vector<std::int32_t> even;
  for (std::int32_t rank = 0; rank < 40; ++rank) {
    even.push_back(2 * rank);
  }
  EXPECT_NE(NameRanks(even).find(" and 24 more"), std::string::npos) << NameRanks(even);
}

TEST(ExitCodeOf, CodeOrSignal_IsPassedOn) {
  WorkerFailure failure;
  for (std::int32_t code = 1; code <= 255; ++code) {
    failure.exit_code = code;
    EXPECT_EQ(ExitCodeOf(failure), code);
  }
  failure.term_signal = 9;
  EXPECT_EQ(ExitCodeOf(failure), 137);
}

TEST(ExitCodeOf, NonsenseFailure_IsNeverSuccess) {
  WorkerFailure failure;
  failure.exit_code = 0;
  EXPECT_EQ(ExitCodeOf(failure), 1);
  failure.exit_code = 256;
  EXPECT_EQ(ExitCodeOf(failure), 1);
  EXPECT_EQ(ExitCodeOfSignal(0), 1);
}

TEST(ToString, EveryReason_HasItsOwnName) {
  std::set<std::string> names;
  const auto last = static_cast<int>(Reason::kRestarting);
  for (int i = 0; i <= last; ++i) {
    names.insert(ToString(static_cast<Reason>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(last) + 1);
  EXPECT_EQ(names.count("unknown"), 0U);
}

}  // namespace
}  // namespace ddl::core
