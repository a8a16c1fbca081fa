// What is said of a round, and said again.
#include "launcher/failures/round_report.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <variant>
#include <vector>

namespace ddl {
namespace {

using std::chrono::seconds;

constexpr Instant kStart{std::chrono::hours(1)};
constexpr std::int64_t kRound = 4;

core::WorkerFailure Failure(std::int32_t rank, bool blames_peer) {
  core::WorkerFailure failure;
  failure.rank = rank;
  failure.blames_peer = blames_peer;
  failure.error_text = "words of rank " + std::to_string(rank);
  return failure;
}

class RoundReportTest : public ::testing::Test {
 protected:
  RoundReportTest() { report_.Begin(kRound); }
  core::WorkerFailed Fail(std::int32_t rank, bool blames_peer, int second) {
    return report_.Failed(Failure(rank, blames_peer), kStart + seconds(second),
                          kStart + seconds(second));
  }
  // The one failure that is said again, at second 100.
  [[nodiscard]] core::WorkerFailed FailedAgain() const {
    const std::vector<core::Event> events = report_.Again(kStart + seconds(100));
    EXPECT_FALSE(events.empty());
    return events.empty() ? core::WorkerFailed{} : std::get<core::WorkerFailed>(events.front());
  }
  RoundReport report_;
};

TEST_F(RoundReportTest, NothingHappened_NothingIsSaid) {
  EXPECT_TRUE(report_.Again(kStart).empty());
}

TEST_F(RoundReportTest, SecondIsTheBetterCause_ItIsSaidAgainWithItsOwnAge) {
  EXPECT_EQ(Fail(1, /*blames_peer=*/true, 10).failure, Failure(1, true));
  EXPECT_EQ(Fail(2, /*blames_peer=*/false, 40).failure, Failure(2, false));
  EXPECT_EQ(FailedAgain().round, kRound);
  EXPECT_EQ(FailedAgain().failure, Failure(2, false));
  EXPECT_EQ(FailedAgain().age, seconds(60));
}

TEST_F(RoundReportTest, SecondIsNoCause_CountedWithoutWordsAndTheFirstStays) {
  Fail(1, /*blames_peer=*/false, 10);
  EXPECT_EQ(Fail(2, /*blames_peer=*/true, 5).failure.error_text, "");
  EXPECT_EQ(Fail(3, /*blames_peer=*/false, 11).failure.error_text, "");
  EXPECT_EQ(FailedAgain().failure, Failure(1, false));
  EXPECT_EQ(FailedAgain().age, seconds(90));
}

TEST_F(RoundReportTest, RoundEnded_TheFailureIsSaidBeforeIt) {
  Fail(1, /*blames_peer=*/false, 10);
  report_.Ended(core::RoundStopped{{}, kRound});
  const std::vector<core::Event> events = report_.Again(kStart + seconds(100));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<core::WorkerFailed>(events[0]));
  EXPECT_TRUE(std::holds_alternative<core::RoundStopped>(events[1]));
}

TEST_F(RoundReportTest, NextRound_NothingIsLeft) {
  Fail(1, /*blames_peer=*/false, 10);
  report_.Ended(core::RoundStopped{{}, kRound});
  report_.Begin(kRound + 1);
  EXPECT_TRUE(report_.Again(kStart).empty());
  EXPECT_EQ(Fail(2, /*blames_peer=*/true, 20).round, kRound + 1);
}

}  // namespace
}  // namespace ddl
