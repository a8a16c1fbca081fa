// Evaluation: each sample once, sums and counts over threads as ranks.
#include "ddl/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::Meeting;
using ::ddl::testing::OnEveryRank;
using ::ddl::testing::ThreadBackend;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EvaluationSampler, AnyWorld_CoversEachSampleOnceAndPadsNone) {
  for (const std::int64_t samples : {1, 2, 10, 101}) {
    for (int world = 1; world <= 6; ++world) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        auto sampler = *EvaluationSampler::Create(samples, rank, world, 4);
        while (const std::optional<IndexRange> batch = sampler.Next()) {
          EXPECT_EQ(batch->begin, next);
          EXPECT_GT(batch->size(), 0);
          EXPECT_LE(batch->size(), 4);
          next = batch->end;
        }
        EXPECT_FALSE(sampler.Next().has_value());
        EXPECT_EQ(next, sampler.share().end);
      }
      EXPECT_EQ(next, samples);
    }
  }
}

TEST(EvaluationSampler, Restart_BeginsAgain) {
  auto sampler = *EvaluationSampler::Create(3, 0, 1, 2);
  sampler.Next();
  sampler.Restart();
  EXPECT_EQ(sampler.Next()->begin, 0);
}

TEST(EvaluationSampler, NothingToEvaluateOrImpossibleNumbers_AreRefused) {
  EXPECT_THAT(std::string(EvaluationSampler::Create(0, 0, 1, 1).status().message()),
              HasSubstr("the evaluation set has 0 samples"));
  EXPECT_FALSE(EvaluationSampler::Create(10, 3, 3, 1).ok());
  EXPECT_FALSE(EvaluationSampler::Create(10, -1, 3, 1).ok());
  EXPECT_FALSE(EvaluationSampler::Create(10, 0, 3, 0).ok());
}

TEST(EvaluationTotals, TenValuesOnThreeRanks_HaveCountTenAndMeanFourAndAHalf) {
  // The mean of the ranks' means would be 4.83; a padded sampler's mean 3.83.
  constexpr int kWorld = 3;
  Meeting meeting(kWorld);
  OnEveryRank(kWorld, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    auto sampler = *EvaluationSampler::Create(10, rank, kWorld, 2);
    EvaluationTotals totals;
    while (const std::optional<IndexRange> batch = sampler.Next()) {
      for (std::int64_t i = batch->begin; i < batch->end; ++i) {
        totals.Add(static_cast<double>(i));
      }
    }
    const auto result = totals.Reduce(backend);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->count, 10);
    EXPECT_DOUBLE_EQ(result->mean(), 4.5);
  });
}

TEST(EvaluationTotals, SeveralValuesAndARankWithoutSamples_AreMeansOverAll) {
  Meeting meeting(2);
  OnEveryRank(2, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    EvaluationTotals totals(2);
    if (rank == 0) {
      totals.Add(std::array{6.0, 3.0}, 4);
      totals.Add(std::array{2.0, 1.0}, 1);
    }
    const auto result = totals.Reduce(backend);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->count, 5);
    EXPECT_THAT(result->means, ElementsAre(1.6, 0.8));
  });
}

TEST(EvaluationTotals, NoSampleAnywhere_IsAnErrorOnEveryRank) {
  Meeting meeting(3);
  OnEveryRank(3, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    const auto result = EvaluationTotals().Reduce(backend);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("no sample on any of 3 ranks"));
  });
}

}  // namespace
}  // namespace ddl
