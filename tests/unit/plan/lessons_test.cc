// Lower, Changes, Compare, Warnings and RankBatchSize: what follows from a plan in force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan Even(std::int64_t micro, std::int64_t accumulation, std::int64_t world) {
  Plan plan;
  plan.world_size = world;
  plan.global_batch_size = micro * accumulation * world;
  plan.micro_batch_size = micro;
  plan.grad_accum_steps = accumulation;
  return plan;
}

Plan Uneven(std::int64_t global, std::int64_t micro, std::int64_t accumulation,
            std::int64_t world) {
  Plan plan = Even(micro, accumulation, world);
  plan.global_batch_size = global;
  return plan;
}

Request Floor(std::int64_t min_micro_batch_size) {
  Request request;
  request.min_micro_batch_size = min_micro_batch_size;
  return request;
}

TEST(Lower, EvenMicro_HalvesAndAccumulationDoubles) {
  Plan plan = Even(32, 2, 4);
  plan.learning_rate = 0.1;
  plan.warmup_samples = 1280;
  plan.warmup_steps = 5;
  const auto lowered = Lower(Request(), plan);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  Plan expected = plan;
  expected.micro_batch_size = 16;
  expected.grad_accum_steps = 4;
  EXPECT_EQ(lowered->plan, expected);
  EXPECT_EQ(lowered->request.learned_max_micro_batch_size, 16);
}

TEST(Lower, OddMicro_TakesTheNextThatSplitsTheShare) {
  const auto lowered = Lower(Request(), Even(9, 4, 1));  // a share of 36
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan, Even(4, 9, 1));
  const auto prime = Lower(Request(), Even(7, 1, 2));
  ASSERT_TRUE(prime.ok()) << prime.status();
  EXPECT_EQ(prime->plan, Even(1, 7, 2));
  EXPECT_EQ(prime->request.learned_max_micro_batch_size, 4);
  const auto five = Lower(Request(), Even(5, 3, 1));
  ASSERT_TRUE(five.ok()) << five.status();
  EXPECT_EQ(five->plan, Even(3, 5, 1));
}

TEST(Lower, UnevenShares_SplitTheLargest) {
  Request request;
  request.batch_policy = BatchPolicy::kExact;
  const auto lowered = Lower(request, Uneven(48, 10, 1, 5));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan, Uneven(48, 5, 2, 5));
}

TEST(Lower, ExactPolicyWithEvenShares_NeedsNoDivisor) {
  Request request;
  request.batch_policy = BatchPolicy::kExact;
  const auto lowered = Lower(request, Even(7, 1, 2));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan, Uneven(14, 4, 2, 2));
}

TEST(Lower, ToTheFloor_ThenRefusedWithIt) {
  const auto lowered = Lower(Floor(6), Even(8, 3, 2));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan, Even(6, 4, 2));
  const auto refused = Lower(Floor(6), lowered->plan);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--min-micro-batch-size=6"));
}

TEST(Lower, NoSplitAtOrAboveTheFloor_RefusedWithTheNext) {
  const auto refused = Lower(Floor(5), Even(8, 1, 2));
  EXPECT_EQ(
      refused.status().message(),
      "a micro-batch of 8 cannot be lowered: the next that splits the 8 samples of a rank is "
      "4, below --min-micro-batch-size=5; lower that, or use a smaller model, mixed precision "
      "or shorter samples");
}

TEST(Lower, OneSample_Refused) {
  EXPECT_THAT(std::string(Lower(Request(), Even(1, 64, 2)).status().message()),
              HasSubstr("one sample does not fit the device"));
}

// Three ranks of 51 samples, as the nearest to 50.
Request Fifty() {
  Request request;
  request.global_batch_size = 50;
  request.batch_policy = BatchPolicy::kNearest;
  request.base_lr = 0.1;
  request.base_batch_size = 50;
  request.lr_scaling = LrScaling::kLinear;
  return request;
}

TEST(Lower, NearestBatch_IsTheSameInTheNextRound) {
  const auto plan = Solve(Fifty(), 3);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->global_batch_size, 51);
  const auto lowered = Lower(Fifty(), *plan);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->request.learned_max_micro_batch_size, 9);
  const auto next = Solve(lowered->request, 3);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next, lowered->plan);
  EXPECT_EQ(next->global_batch_size, 51);
  EXPECT_EQ(next->learning_rate, plan->learning_rate);
}

TEST(Lower, ShareOfNoUsefulDivisor_IsSaidLoudly) {
  const auto lowered = Lower(Fifty(), *Solve(Fifty(), 3));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan.micro_batch_size, 1);
  EXPECT_EQ(Compare(lowered->request, lowered->plan),
            "global batch 50 cannot be shared evenly by 3 ranks: 51 is used "
            "(--batch-policy=nearest), learning rate 0.102 for it");
  EXPECT_THAT(Warnings(lowered->request, lowered->plan),
              ElementsAre("out of memory left micro-batches of up to 9, but the 17 samples of a "
                          "rank split evenly into no more than 1: --global-batch-size=48 would "
                          "train faster"));
}

TEST(Lower, ProgramThatSplitsAnyShare_HalvesReally) {
  Request request;
  request.micro_batch_size = 31;
  request.uneven_micro_steps = true;
  const auto lowered = Lower(request, *Solve(request, 2));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->request.learned_max_micro_batch_size, 16);
  EXPECT_EQ(lowered->plan, Uneven(62, 16, 2, 2));
  EXPECT_FALSE(lowered->plan.even());
  EXPECT_EQ(Describe(lowered->plan),
            "global batch 62 = 2 ranks x 31 samples, in 2 micro-steps of up to 16");
  EXPECT_EQ(Changes(Even(31, 1, 2), lowered->plan),
            "micro-batch 31 -> up to 16 and accumulation 1 -> 2; global batch 62 held");
  EXPECT_EQ(Compare(lowered->request, lowered->plan), "");
  EXPECT_THAT(Warnings(lowered->request, lowered->plan), IsEmpty());
  EXPECT_EQ(*Solve(lowered->request, 2), lowered->plan);
  const auto again = Lower(lowered->request, lowered->plan);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->plan, Uneven(62, 8, 4, 2));
}

TEST(Lesson, ShareOfAnotherWorld_BelowTheFloorIsSaid) {
  Request request = Floor(4);
  request.global_batch_size = 34;
  request.learned_max_micro_batch_size = 8;
  EXPECT_EQ(*Solve(request, 2), Even(1, 17, 2));
  EXPECT_THAT(Warnings(request, Even(1, 17, 2)),
              ElementsAre("out of memory left micro-batches of up to 8, but the 17 samples of a "
                          "rank split evenly into no more than 1, below --min-micro-batch-size=4: "
                          "--global-batch-size=32 would train faster"));
  request.uneven_micro_steps = true;
  EXPECT_EQ(*Solve(request, 2), Uneven(34, 6, 3, 2));
}

TEST(Lesson, ThatDoesNotBind_NeedsNoWords) {
  Request request;
  request.global_batch_size = 12;
  request.learned_max_micro_batch_size = 8;
  EXPECT_THAT(Warnings(request, *Solve(request, 4)), IsEmpty());  // 3 samples a rank
  request.grad_accum_steps = 4;
  EXPECT_THAT(Warnings(request, *Solve(request, 1)), IsEmpty());
}

TEST(Warnings, SmallShares_AreSaidAgainstTheFloor) {
  Request request = Floor(16);
  request.global_batch_size = 32;
  EXPECT_THAT(Warnings(request, *Solve(request, 8)),
              ElementsAre("a rank has only 4 samples in a step, below --min-micro-batch-size=16"));
}

TEST(Warnings, WarmupOrFirstDecayBeyondTheEnd_IsSaid) {
  Request request;
  request.global_batch_size = 32;
  request.base_lr = 0.1;
  request.warmup_steps = 10000;
  request.total_samples = 1617;
  EXPECT_THAT(Warnings(request, *Solve(request, 1)),
              ElementsAre("the warm-up of 320000 samples is not over before the training of 1617 "
                          "is: the rate never reaches 0.1"));
  request.warmup_steps = 50;
  EXPECT_THAT(Warnings(request, *Solve(request, 1)), IsEmpty());
  request.lr_decay = LrDecay::kStep;
  request.lr_decay_steps = 100;
  EXPECT_THAT(Warnings(request, *Solve(request, 1)),
              ElementsAre("the first decay, after 3200 samples, lies beyond the training of 1617: "
                          "the rate is never lowered"));
  request.total_samples.reset();
  EXPECT_THAT(Warnings(request, *Solve(request, 1)), IsEmpty());
}

TEST(Lower, TheLesson_SplitsAGivenMicroBatchToo) {
  Request request;
  request.micro_batch_size = 32;
  request.grad_accum_steps = 2;
  const auto lowered = Lower(request, *Solve(request, 4));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan, Even(16, 4, 4));
  EXPECT_EQ(*Solve(lowered->request, 4), lowered->plan);
}

TEST(Changes, SmallerWorld_SaysWhatMovedAndWhatWasHeld) {
  Plan before = Even(4, 3, 4);
  before.learning_rate = 0.1;
  before.warmup_samples = 480;
  Plan after = before;
  after.world_size = 3;
  after.grad_accum_steps = 4;
  EXPECT_EQ(Changes(before, after),
            "world 4 -> 3 and accumulation 3 -> 4; global batch 48, micro-batch 4, learning rate "
            "0.1 and warm-up held");
}

TEST(Changes, OutOfMemory_MovesOnlyTheSplit) {
  EXPECT_EQ(Changes(Even(4, 3, 4), Even(2, 6, 4)),
            "micro-batch 4 -> 2 and accumulation 3 -> 6; global batch 48 held");
}

TEST(Changes, OtherGlobal_MovesTheRate) {
  Plan before = Even(4, 3, 4);
  before.learning_rate = 0.4;
  Plan after = Even(2, 5, 5);
  after.learning_rate = 0.4 * 50 / 48;
  EXPECT_EQ(Changes(before, after),
            "world 4 -> 5, global batch 48 -> 50, micro-batch 4 -> 2, accumulation 3 -> 5 and "
            "learning rate 0.4 -> 0.416667");
}

TEST(Changes, SamePlan_NothingMoved) {
  EXPECT_EQ(Changes(Even(4, 3, 4), Even(4, 3, 4)),
            "nothing moved: global batch 48, micro-batch 4 and accumulation 3 held");
}

TEST(Compare, AnotherGlobal_IsSaidWithItsRate) {
  Request request;
  request.global_batch_size = 48;
  request.lr_scaling = LrScaling::kLinear;
  Plan plan = Even(2, 5, 5);
  plan.learning_rate = 0.4 * 50 / 48;
  EXPECT_EQ(Compare(request, plan),
            "global batch 48 cannot be shared evenly by 5 ranks: 50 is used "
            "(--batch-policy=nearest), learning rate 0.416667 for it");
  request.lr_scaling.reset();
  EXPECT_EQ(Compare(request, plan),
            "global batch 48 cannot be shared evenly by 5 ranks: 50 is used "
            "(--batch-policy=nearest)");
}

TEST(Compare, FewerSamplesThanRanks_IsSaidWithTheFactor) {
  Request request;
  request.global_batch_size = 1021;
  EXPECT_EQ(Compare(request, Even(1, 1, 5000)),
            "global batch 1021 is less than a sample for each of 5000 ranks: 5000 is used, 4.9 "
            "times as many (--batch-policy=nearest)");
  request.global_batch_size = 2048;
  EXPECT_THAT(Compare(request, Even(1, 1, 1000000)), HasSubstr("1000000 is used, 488 times as"));
}

TEST(Compare, UnevenShares_AreSaid) {
  Request request;
  request.global_batch_size = 48;
  EXPECT_EQ(Compare(request, Uneven(48, 4, 3, 5)),
            "global batch 48 is shared unevenly by 5 ranks: 10 samples for the first 3, 9 for the "
            "others (--batch-policy=exact)");
}

TEST(Compare, WhatWasAskedFor_NeedsNoWords) {
  Request request;
  EXPECT_EQ(Compare(request, Even(4, 3, 4)), "");
  request.global_batch_size = 48;
  EXPECT_EQ(Compare(request, Even(4, 3, 4)), "");
}

TEST(RankBatchSize, UnevenShares_FirstRanksHaveOneMoreAndSumToGlobal) {
  const Plan plan = Uneven(48, 4, 3, 5);
  std::int64_t sum = 0;
  for (std::int64_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(RankBatchSize(plan, rank), rank < 3 ? 10 : 9);
    sum += RankBatchSize(plan, rank);
  }
  EXPECT_EQ(sum, 48);
}

}  // namespace
}  // namespace ddl::plan
