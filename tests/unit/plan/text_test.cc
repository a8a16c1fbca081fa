// Hash, Describe and the names of the scalings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Plan Sample() {
  Plan plan;
  plan.world_size = 2;
  plan.global_batch_size = 128;
  plan.micro_batch_size = 32;
  plan.grad_accum_steps = 2;
  plan.learning_rate = 0.1;
  return plan;
}

TEST(Hash, KnownPlan_KnownDigits) {
  // FNV-1a over "ddl-plan-1 world=2 global=128 micro=32 accumulation=2 lr=0.1
  // warmup=0". Nodes of different builds compare it: it may only change with
  // the version in that text.
  EXPECT_EQ(Hash(Sample()), "b718131bb4aa060a");
}

TEST(Hash, AnyPlan_IsSixteenLowerCaseHexDigits) {
  EXPECT_THAT(Hash(Plan()), MatchesRegex("[0-9a-f]{16}"));
}

TEST(Hash, EqualPlans_EqualHashes) {
  EXPECT_EQ(Hash(Sample()), Hash(Sample()));
}

TEST(Hash, EachFieldChanged_AnotherHash) {
  std::vector<Plan> plans(9, Sample());
  plans[1].world_size = 4;
  plans[2].global_batch_size = 256;
  plans[3].micro_batch_size = 64;
  plans[4].grad_accum_steps = 4;
  plans[5].learning_rate.reset();
  plans[6].learning_rate = std::nextafter(0.1, 1.0);
  plans[7].warmup_steps = 1;
  plans[8].learning_rate = 0.1F;
  std::set<std::string> hashes;
  for (const Plan& plan : plans) {
    hashes.insert(Hash(plan));
  }
  EXPECT_EQ(hashes.size(), plans.size());
}

TEST(DescribePlan, RateAndWarmup_OnlyWhereTheySaySomething) {
  Plan plan = Sample();
  EXPECT_EQ(Describe(plan),
            "global batch 128 = micro 32 x accumulation 2 x world 2, learning rate 0.1");
  plan.warmup_steps = 10;
  EXPECT_EQ(Describe(plan),
            "global batch 128 = micro 32 x accumulation 2 x world 2, learning rate 0.1, "
            "warm-up 10 steps");
  plan.learning_rate.reset();
  plan.warmup_steps = 0;
  EXPECT_EQ(Describe(plan), "global batch 128 = micro 32 x accumulation 2 x world 2");
}

TEST(DescribePlan, UnevenShares_AreNoProductOfTheThree) {
  Plan plan;
  plan.world_size = 5;
  plan.global_batch_size = 48;
  plan.micro_batch_size = 4;
  plan.grad_accum_steps = 3;
  EXPECT_EQ(Describe(plan),
            "global batch 48 = 3 ranks x 10 + 2 x 9 samples, in 3 micro-steps of up to 4");
  EXPECT_EQ(DescribeShares(plan), "3 ranks x 10 + 2 x 9");
  plan.micro_batch_size = 10;
  plan.grad_accum_steps = 1;
  EXPECT_EQ(Describe(plan), "global batch 48 = 3 ranks x 10 + 2 x 9 samples, in 1 micro-step");
  plan.global_batch_size = 31;
  plan.world_size = 1;
  plan.micro_batch_size = 11;
  plan.grad_accum_steps = 3;
  EXPECT_EQ(Describe(plan), "global batch 31 = 1 rank x 31 samples, in 3 micro-steps of up to 11");
}

TEST(DescribeRequest, EachField_IsItsFlag) {
  Request request;
  EXPECT_EQ(Describe(request), "");
  request.global_batch_size = 64;
  request.base_lr = 0.1;
  EXPECT_EQ(Describe(request), "--global-batch-size=64 --base-lr=0.1");
  request.micro_batch_size = 8;
  request.max_micro_batch_size = 16;
  request.grad_accum_steps = 2;
  request.base_batch_size = 32;
  request.lr_scaling = LrScaling::kSqrt;
  request.warmup_steps = 0;
  EXPECT_EQ(Describe(request),
            "--global-batch-size=64 --micro-batch-size=8 --max-micro-batch-size=16 "
            "--grad-accum-steps=2 --base-lr=0.1 --base-batch-size=32 --lr-scaling=sqrt "
            "--warmup-steps=0");
}

TEST(Request, Empty_OnlyWithoutAnyField) {
  EXPECT_TRUE(Request().empty());
  Request request;
  request.warmup_steps = 0;
  EXPECT_FALSE(request.empty());
}

TEST(LrScaling, EachName_ReadsBack) {
  for (const LrScaling scaling : {LrScaling::kNone, LrScaling::kLinear, LrScaling::kSqrt}) {
    const auto parsed = ParseLrScaling(ToString(scaling));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, scaling);
  }
}

TEST(LrScaling, UnknownName_IsRefusedWithTheKnownOnes) {
  const auto parsed = ParseLrScaling("Linear");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("--lr-scaling=Linear is not known; use none, linear or sqrt"));
}

}  // namespace
}  // namespace ddl::plan
