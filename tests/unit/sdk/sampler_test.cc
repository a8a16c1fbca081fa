// DistributedSampler: each sample once, the same global batches at every world.
#include "ddl/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace ddl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kSeed = 7;

Plan MakePlan(int world, std::int64_t micro, std::int64_t accumulation) {
  Plan plan;
  plan.world_size = world;
  plan.micro_batch_size = micro;
  plan.grad_accum_steps = accumulation;
  plan.global_batch_size = world * micro * accumulation;
  return plan;
}

// What the samplers may warn of is passed on only to the test of the warning.
std::vector<DistributedSampler> MakeSamplers(std::int64_t samples, const Plan& plan,
                                             std::string* warning = nullptr) {
  std::vector<DistributedSampler> samplers;
  ::testing::internal::CaptureStderr();
  for (int rank = 0; rank < plan.world_size; ++rank) {
    samplers.push_back(*DistributedSampler::Create(samples, plan, rank, kSeed));
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  if (warning != nullptr) {
    *warning = said;
  }
  return samplers;
}

// The samples of the next global batch, in rank and micro-step order; every
// rank's share is checked against the plan. Empty at the end of the epoch.
std::vector<std::int64_t> NextGlobalBatch(std::vector<DistributedSampler>& samplers,
                                          const Plan& plan) {
  std::vector<std::int64_t> batch;
  std::int64_t announced = 0;
  std::size_t steps = 0;
  for (DistributedSampler& sampler : samplers) {
    const std::optional<StepShare> share = sampler.Next();
    if (!share.has_value()) {
      continue;
    }
    ++steps;
    announced = share->global_samples;
    const std::size_t before = batch.size();
    EXPECT_LE(share->micro_batches.size(), static_cast<std::size_t>(plan.grad_accum_steps));
    for (const auto micro_batch : share->micro_batches) {
      EXPECT_FALSE(micro_batch.empty());
      EXPECT_LE(micro_batch.size(), static_cast<std::size_t>(plan.micro_batch_size));
      batch.insert(batch.end(), micro_batch.begin(), micro_batch.end());
    }
    EXPECT_TRUE(std::equal(share->samples.begin(), share->samples.end(),
                           batch.begin() + static_cast<std::ptrdiff_t>(before), batch.end()));
  }
  // All ranks make the step, or none does.
  EXPECT_TRUE(steps == 0 || steps == samplers.size());
  EXPECT_EQ(batch.size(), static_cast<std::size_t>(announced));
  return batch;
}

std::vector<std::vector<std::int64_t>> RestOfEpoch(std::vector<DistributedSampler>& samplers,
                                                   const Plan& plan) {
  std::vector<std::vector<std::int64_t>> batches;
  for (auto batch = NextGlobalBatch(samplers, plan); !batch.empty();
       batch = NextGlobalBatch(samplers, plan)) {
    batches.push_back(batch);
  }
  return batches;
}

std::vector<std::int64_t> Flat(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) {
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(Permutation, KnownSeed_KnownOrder) {
  // Written down so that a change of generator is seen: checkpoints of older
  // runs rely on it.
  EXPECT_THAT(Permutation(8, 1, 0), ElementsAre(5, 6, 0, 3, 4, 1, 7, 2));
}

TEST(Permutation, AnyCount_HasEachIndexOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 10, 1437}) {
    std::vector<std::int64_t> order = Permutation(count, kSeed, 3);
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> expected(static_cast<std::size_t>(count));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
}

TEST(Permutation, OtherSeedOrEpoch_OtherOrder) {
  const std::set<std::vector<std::int64_t>> orders = {Permutation(50, 0, 0), Permutation(50, 0, 1),
                                                      Permutation(50, 1, 0), Permutation(50, 1, 1),
                                                      Permutation(50, 2, 0), Permutation(50, 2, 1)};
  EXPECT_THAT(orders, SizeIs(6));
}

TEST(Permutation, EveryPosition_IsUniformlyDistributed) {
  constexpr int kCount = 5;
  constexpr int kDraws = 20'000;
  std::vector<std::vector<int>> hits(kCount, std::vector<int>(kCount));
  for (int epoch = 0; epoch < kDraws; ++epoch) {
    const auto order = Permutation(kCount, kSeed, epoch);
    for (std::size_t i = 0; i < kCount; ++i) {
      ++hits[i][static_cast<std::size_t>(order[i])];
    }
  }
  // 4000 expected; five standard deviations are 283.
  for (const auto& row : hits) {
    for (const int hit : row) {
      EXPECT_NEAR(hit, 1.0 * kDraws / kCount, 283);
    }
  }
}

TEST(ShareOf, AnyCount_PartsAreContiguousAndDifferByOne) {
  for (std::int64_t count = 0; count < 40; ++count) {
    for (int world = 1; world <= 8; ++world) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const IndexRange share = ShareOf(count, rank, world);
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.size(), count / world);
        EXPECT_LE(share.size(), (count + world - 1) / world);
        next = share.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Sampler, AnyWorld_CoversEachSampleOnce) {
  for (const std::int64_t samples : {1, 5, 7, 64, 100, 101}) {
    for (int world = 1; world <= 8; ++world) {
      for (const std::int64_t accumulation : {1, 2, 3}) {
        const Plan plan = MakePlan(world, 3, accumulation);
        auto samplers = MakeSamplers(samples, plan);
        std::vector<std::int64_t> all = Flat(RestOfEpoch(samplers, plan));
        ASSERT_EQ(all, Permutation(samples, kSeed, 0)) << samples << " on " << world;
      }
    }
  }
}

TEST(Sampler, SameGlobalBatch_IsTheSameSamplesAtEveryFactorisation) {
  constexpr std::int64_t kSamples = 1437;
  const Plan one = MakePlan(1, 32, 1);
  auto alone = MakeSamplers(kSamples, one);
  const auto expected = RestOfEpoch(alone, one);
  EXPECT_THAT(expected, SizeIs(45));
  EXPECT_THAT(expected.back(), SizeIs(29));
  for (const Plan& plan : {MakePlan(1, 8, 4), MakePlan(2, 16, 1), MakePlan(2, 4, 4),
                           MakePlan(4, 8, 1), MakePlan(4, 2, 4), MakePlan(8, 1, 4)}) {
    auto samplers = MakeSamplers(kSamples, plan);
    EXPECT_EQ(RestOfEpoch(samplers, plan), expected) << plan.ToString();
  }
}

TEST(Sampler, ResumedAtAnotherWorld_CoversExactlyTheRest) {
  constexpr std::int64_t kSamples = 103;
  const auto order = Permutation(kSamples, kSeed, 2);
  for (int before = 1; before <= 4; ++before) {
    for (int after = 1; after <= 8; ++after) {
      const Plan first = MakePlan(before, 4, 2);
      auto samplers = MakeSamplers(kSamples, first);
      std::vector<std::int64_t> seen;
      for (DistributedSampler& sampler : samplers) {
        ASSERT_TRUE(sampler.StartEpoch(2).ok());
      }
      for (int step = 0; step < 2; ++step) {
        const auto batch = NextGlobalBatch(samplers, first);
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      const std::int64_t consumed = samplers[0].consumed();
      EXPECT_EQ(consumed, first.global_batch_size * 2);

      const Plan second = MakePlan(after, 3, 1);
      auto resumed = MakeSamplers(kSamples, second);
      for (DistributedSampler& sampler : resumed) {
        ASSERT_TRUE(sampler.StartEpoch(2, consumed).ok());
      }
      const auto rest = Flat(RestOfEpoch(resumed, second));
      seen.insert(seen.end(), rest.begin(), rest.end());
      ASSERT_EQ(seen, order) << before << " to " << after;
    }
  }
}

TEST(Sampler, IncompleteLastBatch_HasUnevenSharesAndNoneIsPadded) {
  const Plan plan = MakePlan(4, 2, 1);
  auto samplers = MakeSamplers(10, plan);  // 8, then 2 for 4 ranks
  NextGlobalBatch(samplers, plan);
  std::vector<std::size_t> micro_batches;
  for (DistributedSampler& sampler : samplers) {
    const std::optional<StepShare> share = sampler.Next();
    ASSERT_TRUE(share.has_value());
    EXPECT_EQ(share->global_samples, 2);
    EXPECT_EQ(share->step_in_epoch, 1);
    micro_batches.push_back(share->micro_batches.size());
    EXPECT_FALSE(sampler.Next().has_value());
  }
  EXPECT_THAT(micro_batches, ElementsAre(1, 1, 0, 0));
}

TEST(Sampler, StepsPerEpoch_CountsTheIncompleteOne) {
  EXPECT_EQ(DistributedSampler::Create(64, MakePlan(2, 16, 1), 0, kSeed)->steps_per_epoch(), 2);
  EXPECT_EQ(DistributedSampler::Create(65, MakePlan(2, 16, 1), 0, kSeed)->steps_per_epoch(), 3);
}

TEST(Sampler, NextEpoch_HasItsOwnOrder) {
  const Plan plan = MakePlan(1, 10, 1);
  auto samplers = MakeSamplers(100, plan);
  const auto first = Flat(RestOfEpoch(samplers, plan));
  ASSERT_TRUE(samplers[0].StartEpoch(1).ok());
  const auto second = Flat(RestOfEpoch(samplers, plan));
  EXPECT_NE(first, second);
  EXPECT_EQ(second, Permutation(100, kSeed, 1));
}

TEST(Sampler, LoopThatForgetsTheNextEpoch_GetsItAnyway) {
  auto sampler = *DistributedSampler::Create(100, MakePlan(1, 10, 1), 0, kSeed);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> seen;
    while (const std::optional<StepShare> share = sampler.Next()) {
      EXPECT_EQ(share->epoch, epoch);
      seen.insert(seen.end(), share->samples.begin(), share->samples.end());
    }
    EXPECT_EQ(seen, Permutation(100, kSeed, epoch));
    EXPECT_EQ(sampler.epoch(), epoch);
    EXPECT_EQ(sampler.samples_done(), (epoch + 1) * 100);
  }
}

// Each rank's samples of a whole epoch.
std::vector<std::vector<std::int64_t>> EpochByRank(std::int64_t samples, const Plan& plan,
                                                   const SamplerOptions& options) {
  std::vector<std::vector<std::int64_t>> by_rank;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    auto sampler = *DistributedSampler::Create(samples, plan, rank, kSeed, options);
    by_rank.emplace_back();
    std::int64_t steps = 0;
    while (const std::optional<StepShare> share = sampler.Next()) {
      by_rank.back().insert(by_rank.back().end(), share->samples.begin(), share->samples.end());
      ++steps;
    }
    EXPECT_EQ(steps, sampler.steps_per_epoch());
  }
  return by_rank;
}

TEST(Sampler, PaddedWithoutShuffle_IsPyTorchsOrder) {
  // 10 samples, three ranks: what torch 1.13's DistributedSampler gives.
  EXPECT_THAT(
      EpochByRank(10, MakePlan(3, 1, 1), {.shuffle = false, .tail = Tail::kPad}),
      ElementsAre(ElementsAre(0, 3, 6, 9), ElementsAre(1, 4, 7, 0), ElementsAre(2, 5, 8, 1)));
}

TEST(Sampler, DroppedWithoutShuffle_IsPyTorchsOrder) {
  EXPECT_THAT(EpochByRank(10, MakePlan(3, 1, 1), {.shuffle = false, .tail = Tail::kDrop}),
              ElementsAre(ElementsAre(0, 3, 6), ElementsAre(1, 4, 7), ElementsAre(2, 5, 8)));
}

TEST(Sampler, UnevenWithoutShuffle_HasEachOnce) {
  EXPECT_THAT(EpochByRank(10, MakePlan(3, 1, 1), {.shuffle = false}),
              ElementsAre(ElementsAre(0, 3, 6, 9), ElementsAre(1, 4, 7), ElementsAre(2, 5, 8)));
}

TEST(Sampler, AnyTail_GivesWhatItPromises) {
  for (const std::int64_t samples : {1, 2, 5, 10, 31, 64, 100, 101}) {
    for (int world = 1; world <= 7; ++world) {
      const Plan plan = MakePlan(world, 3, 2);
      const std::int64_t global = plan.global_batch_size;
      std::vector<std::int64_t> all;
      for (const auto& ids : EpochByRank(samples, plan, {.tail = Tail::kPad})) {
        EXPECT_EQ(ids.size(), static_cast<std::size_t>((samples + world - 1) / world))
            << samples << " on " << world;
        all.insert(all.end(), ids.begin(), ids.end());
      }
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
      EXPECT_EQ(all.size(), static_cast<std::size_t>(samples));  // none is missing

      if (samples < global) {
        const auto none =
            DistributedSampler::Create(samples, plan, 0, kSeed, {.tail = Tail::kDrop});
        EXPECT_THAT(std::string(none.status().message()), HasSubstr("the tail is dropped"));
        continue;
      }
      for (const auto& ids : EpochByRank(samples, plan, {.tail = Tail::kDrop})) {
        EXPECT_EQ(ids.size(), static_cast<std::size_t>(samples / global * global / world));
      }
    }
  }
}

TEST(Sampler, PaddedTail_CountsTheDataOnceInItsPosition) {
  auto sampler = *DistributedSampler::Create(10, MakePlan(3, 1, 1), 0, kSeed,
                                             {.shuffle = false, .tail = Tail::kPad});
  ASSERT_TRUE(sampler.StartEpoch(4, 9).ok());
  const std::optional<StepShare> share = sampler.Next();
  ASSERT_TRUE(share.has_value());
  EXPECT_EQ(share->global_samples, 3);  // the divisor: two of them come a second time
  EXPECT_EQ(share->epoch, 4);
  EXPECT_EQ(share->consumed_before, 9);
  EXPECT_EQ(share->epoch_samples, 10);
  EXPECT_EQ(share->global_batch, 3);
  EXPECT_EQ(share->tail_samples, 3);
  EXPECT_TRUE(share->fixed_order);
  EXPECT_EQ(sampler.consumed(), 10);
  EXPECT_EQ(sampler.samples_done(), 50);
  EXPECT_FALSE(sampler.Next().has_value());
}

TEST(Sampler, NoSamples_IsAnError) {
  const auto sampler = DistributedSampler::Create(0, MakePlan(1, 1, 1), 0, kSeed);
  EXPECT_EQ(sampler.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sampler.status().message()), HasSubstr("0 samples"));
}

TEST(Sampler, FewerSamplesThanRanks_WarnsOnceAndStillStepsEverywhere) {
  const Plan plan = MakePlan(4, 1, 1);
  std::string said;
  auto samplers = MakeSamplers(3, plan, &said);
  EXPECT_THAT(said, HasSubstr("ddl: warning: 3 samples for 4 ranks"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_THAT(RestOfEpoch(samplers, plan), SizeIs(1));
}

TEST(Sampler, EnoughSamples_SaysNothing) {
  std::string said;
  MakeSamplers(4, MakePlan(4, 1, 1), &said);
  EXPECT_THAT(said, IsEmpty());
}

TEST(Sampler, PositionBeyondTheData_IsRefused) {
  auto sampler = *DistributedSampler::Create(10, MakePlan(1, 2, 1), 0, kSeed);
  EXPECT_FALSE(sampler.StartEpoch(0, 11).ok());
  EXPECT_FALSE(sampler.StartEpoch(0, -1).ok());
  EXPECT_FALSE(sampler.StartEpoch(-1, 0).ok());
  EXPECT_TRUE(sampler.StartEpoch(0, 10).ok());
  EXPECT_FALSE(sampler.Next().has_value());
}

TEST(Sampler, RankOutsideTheWorld_IsRefused) {
  EXPECT_FALSE(DistributedSampler::Create(10, MakePlan(2, 2, 1), 2, kSeed).ok());
  EXPECT_FALSE(DistributedSampler::Create(10, MakePlan(2, 2, 1), -1, kSeed).ok());
  EXPECT_FALSE(DistributedSampler::Create(10, Plan(), 0, kSeed).ok());
}

}  // namespace
}  // namespace ddl
