// DataSeed: different for each rank and epoch, and always the same.
#include "ddl/seeds.h"

#include <gtest/gtest.h>

#include <set>

namespace ddl {
namespace {

TEST(DataSeed, EveryRankAndEpoch_HasItsOwn) {
  std::set<std::uint64_t> seeds;
  for (int rank = 0; rank < 200; ++rank) {
    for (std::int64_t epoch = 0; epoch < 200; ++epoch) {
      seeds.insert(DataSeed(1, rank, epoch));
    }
  }
  EXPECT_EQ(seeds.size(), 200U * 200U);
}

TEST(DataSeed, OtherSeed_GivesOthers) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (int rank = 0; rank < 100; ++rank) {
      seeds.insert(DataSeed(seed, rank, 0));
    }
  }
  EXPECT_EQ(seeds.size(), 100U * 100U);
}

TEST(DataSeed, SameNumbers_GiveTheSameForEver) {
  // Written down so that a change is seen: runs must be repeatable.
  EXPECT_EQ(DataSeed(0, 0, 0), 12035550249420947055U);
  EXPECT_EQ(DataSeed(7, 3, 12), 13412441918921428061U);
}

TEST(DataSeed, RankZeroInEpochZero_DoesNotHaveTheModelsSeed) {
  // The model's seed is the plain one, the same on every rank.
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    EXPECT_NE(DataSeed(seed, 0, 0), seed);
  }
}

}  // namespace
}  // namespace ddl
