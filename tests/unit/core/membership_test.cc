// Ranks: pinned, kept, or by arrival.
#include "agent/core/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ddl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

Candidate Free(std::int64_t arrival) {
  return Candidate{arrival, std::nullopt, std::nullopt};
}
Candidate Pinned(std::int64_t arrival, std::int32_t rank) {
  return Candidate{arrival, rank, std::nullopt};
}
Candidate Held(std::int64_t arrival, std::int32_t rank) {
  return Candidate{arrival, std::nullopt, rank};
}

TEST(AssignNodeRanks, Newcomers_SitInOrderOfArrival) {
  EXPECT_THAT(AssignNodeRanks({Free(2), Free(0), Free(1)}, 3),
              ElementsAre(Optional(1), Optional(2), Optional(0)));
}

TEST(AssignNodeRanks, Pinned_IsHonouredWhateverTheArrival) {
  EXPECT_THAT(AssignNodeRanks({Free(0), Pinned(1, 0)}, 2), ElementsAre(Optional(1), Optional(0)));
}

TEST(AssignNodeRanks, Survivors_KeepTheirRankAndTheNewcomerTakesTheHole) {
  EXPECT_THAT(AssignNodeRanks({Held(0, 2), Free(5), Held(1, 0)}, 3),
              ElementsAre(Optional(2), Optional(1), Optional(0)));
}

TEST(AssignNodeRanks, PinnedNewcomer_MovesTheHolderOfItsRank) {
  EXPECT_THAT(AssignNodeRanks({Held(0, 0), Pinned(1, 0)}, 2),
              ElementsAre(Optional(1), Optional(0)));
}

TEST(AssignNodeRanks, MoreThanSeats_MembersGoBeforeNewcomers) {
  EXPECT_THAT(AssignNodeRanks({Free(0), Held(5, 1), Held(6, 0)}, 2),
              ElementsAre(Optional(2), Optional(1)));
}

TEST(AssignNodeRanks, TooFew_LeavesHoles) {
  EXPECT_THAT(AssignNodeRanks({Pinned(0, 2), Free(1)}, 3),
              ElementsAre(Optional(1), std::nullopt, Optional(0)));
}

TEST(AssignNodeRanks, PinsBeyondTheSeats_KeepTheirOrder) {
  EXPECT_THAT(AssignNodeRanks({Pinned(0, 3), Pinned(1, 0), Free(2)}, 3),
              ElementsAre(Optional(1), Optional(2), Optional(0)));
  EXPECT_THAT(AssignNodeRanks({Pinned(0, 5), Pinned(1, 7)}, 2),
              ElementsAre(Optional(0), Optional(1)));
}

TEST(AssignNodeRanks, SamePinTwice_TheLaterGetsNoSeat) {
  EXPECT_THAT(AssignNodeRanks({Pinned(1, 1), Pinned(0, 1)}, 2),
              ElementsAre(std::nullopt, Optional(1)));
}

TEST(AssignNodeRanks, AnyOrderOfCandidates_SamePlaces) {
  std::vector<Candidate> candidates = {Held(0, 1), Pinned(1, 3), Free(2), Held(3, 0), Free(4)};
  const auto arrivals = [](const std::vector<Candidate>& of) {
    std::vector<std::int64_t> by_rank;
    for (const auto index : AssignNodeRanks(of, 4)) {
      by_rank.push_back(index.has_value() ? of[*index].arrival : -1);
    }
    return by_rank;
  };
  const auto expected = arrivals(candidates);
  EXPECT_THAT(expected, ElementsAre(3, 0, 2, 1));
  for (int i = 0; i < 5; ++i) {
    std::rotate(candidates.begin(), candidates.begin() + 1, candidates.end());
    EXPECT_EQ(arrivals(candidates), expected);
  }
}

}  // namespace
}  // namespace ddl::core
