// Solve without policies, Merge and HoldGlobal: the identity, the cap and the learning
// rate; and the divisors beneath.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "agent/plan/divisors.h"
#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

Request Batch(std::optional<std::int64_t> global, std::optional<std::int64_t> micro,
              std::optional<std::int64_t> accumulation,
              std::optional<std::int64_t> cap = std::nullopt) {
  Request request;
  request.global_batch_size = global;
  request.micro_batch_size = micro;
  request.grad_accum_steps = accumulation;
  request.max_micro_batch_size = cap;
  return request;
}

// "micro x accumulation x world = global", or the error's text.
std::string Solved(const Request& request, std::int64_t world) {
  const auto plan = Solve(request, world);
  if (!plan.ok()) {
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  }
  EXPECT_EQ(plan->world_size, world);
  return std::to_string(plan->micro_batch_size) + " x " + std::to_string(plan->grad_accum_steps) +
         " x " + std::to_string(world) + " = " + std::to_string(plan->global_batch_size);
}

TEST(Solve, CapBelowShare_TakesTheLargestDivisorThatFits) {
  EXPECT_EQ(Solved(Batch(128, {}, {}, 48), 2), "32 x 2 x 2 = 128");
  EXPECT_EQ(Solved(Batch(1024, {}, {}, 64), 8), "64 x 2 x 8 = 1024");
  EXPECT_EQ(Solved(Batch(36, {}, {}, 10), 1), "9 x 4 x 1 = 36");
  EXPECT_EQ(Solved(Batch(97, {}, {}, 96), 1), "1 x 97 x 1 = 97");  // a prime
  EXPECT_EQ(Solved(Batch(49, {}, {}, 7), 1), "7 x 7 x 1 = 49");    // a square
  EXPECT_EQ(Solved(Batch(512, {}, {}, 4), 1), "4 x 128 x 1 = 512");
}

TEST(Solve, CapAgainstSearchByHand_Agrees) {
  for (std::int64_t global = 1; global <= 240; ++global) {
    for (std::int64_t cap = 1; cap <= global; ++cap) {
      std::int64_t best = 1;
      for (std::int64_t d = 1; d <= cap; ++d) {
        best = global % d == 0 ? d : best;
      }
      const auto plan = Solve(Batch(global, {}, {}, cap), 1);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ASSERT_EQ(plan->micro_batch_size, best) << global << " cap " << cap;
      ASSERT_EQ(plan->grad_accum_steps, global / best);
    }
  }
}

TEST(Solve, CapAboveShare_NeedsNoAccumulation) {
  EXPECT_EQ(Solved(Batch(128, {}, {}, 64), 2), "64 x 1 x 2 = 128");
  EXPECT_EQ(Solved(Batch(128, {}, {}, 1000), 2), "64 x 1 x 2 = 128");
}

TEST(Solve, OnlyGlobal_MicroIsTheWholeShare) {
  EXPECT_EQ(Solved(Batch(32, {}, {}), 4), "8 x 1 x 4 = 32");
  EXPECT_EQ(Solved(Batch(32, {}, {}), 1), "32 x 1 x 1 = 32");
}

TEST(Solve, OnlyMicro_AccumulatesOnce) {
  EXPECT_EQ(Solved(Batch({}, 16, {}), 4), "16 x 1 x 4 = 64");
}

TEST(Solve, AnyTwo_GiveTheThird) {
  EXPECT_EQ(Solved(Batch(128, 32, {}), 2), "32 x 2 x 2 = 128");
  EXPECT_EQ(Solved(Batch(128, {}, 2), 2), "32 x 2 x 2 = 128");
  EXPECT_EQ(Solved(Batch({}, 32, 2), 2), "32 x 2 x 2 = 128");
}

TEST(Solve, AllThreeThatAgree_AreTaken) {
  EXPECT_EQ(Solved(Batch(128, 32, 2, 32), 2), "32 x 2 x 2 = 128");
}

TEST(Solve, AllThreeThatContradict_NamesEachFlagAndWhatWouldDo) {
  EXPECT_EQ(Solved(Batch(96, 16, 2), 2),
            "--global-batch-size=96, --micro-batch-size=16 and --grad-accum-steps=2 do not "
            "multiply out on 2 ranks: 16 x 2 x 2 is 64, not 96; nearest: "
            "--global-batch-size=64, or --grad-accum-steps=3, or --micro-batch-size=24"
            ", or --batch-policy=nearest or exact");
  // Right for a world of 2, wrong for this one.
  EXPECT_THAT(Solved(Batch(128, 32, 2), 4),
              AllOf(HasSubstr("on 4 ranks"), HasSubstr("is 256, not 128"),
                    HasSubstr("--grad-accum-steps=1"), HasSubstr("--micro-batch-size=16")));
}

TEST(Solve, GlobalNoMultipleOfMicro_NamesTheNearestOfBoth) {
  EXPECT_EQ(Solved(Batch(100, 24, {}), 2),
            "--global-batch-size=100 is no multiple of --micro-batch-size=24 x 2 ranks; nearest: "
            "--global-batch-size=96 or 144, or --micro-batch-size=10 or 25"
            ", or --batch-policy=nearest or exact");
  EXPECT_EQ(Solved(Batch(10, 8, {}), 4),
            "--global-batch-size=10 is no multiple of --micro-batch-size=8 x 4 ranks; nearest: "
            "--global-batch-size=32, or --batch-policy=nearest or exact");
}

TEST(Solve, GlobalNoMultipleOfAccumulation_NamesTheNearestOfBoth) {
  EXPECT_EQ(Solved(Batch(32, {}, 5), 2),
            "--global-batch-size=32 is no multiple of --grad-accum-steps=5 x 2 ranks; nearest: "
            "--global-batch-size=30 or 40, or --grad-accum-steps=4 or 8"
            ", or --batch-policy=nearest or exact");
  // More micro-steps than samples of a rank.
  EXPECT_THAT(Solved(Batch(32, {}, 100), 2), HasSubstr("or --grad-accum-steps=16"));
}

TEST(Solve, NearestNumbers_AreThemselvesSolvable) {
  EXPECT_EQ(Solved(Batch(96, 24, {}), 2), "24 x 2 x 2 = 96");
  EXPECT_EQ(Solved(Batch(144, 24, {}), 2), "24 x 3 x 2 = 144");
  EXPECT_EQ(Solved(Batch(100, 10, {}), 2), "10 x 5 x 2 = 100");
  EXPECT_EQ(Solved(Batch(100, 25, {}), 2), "25 x 2 x 2 = 100");
}

TEST(Solve, GlobalNotSharedEvenly_NamesTheNeighbours) {
  EXPECT_EQ(Solved(Batch(100, {}, {}), 8),
            "--global-batch-size=100 cannot be shared evenly by 8 ranks; nearest: "
            "--global-batch-size=96 or 104, or --batch-policy=nearest or exact");
  EXPECT_EQ(Solved(Batch(3, {}, {}), 8),
            "--global-batch-size=3 cannot be shared evenly by 8 ranks; nearest: "
            "--global-batch-size=8, or --batch-policy=nearest");
}

TEST(Solve, MicroAboveCap_Refused) {
  EXPECT_THAT(Solved(Batch({}, 64, {}, 48), 2),
              AllOf(HasSubstr("--micro-batch-size=64"), HasSubstr("--max-micro-batch-size=48")));
  EXPECT_THAT(Solved(Batch(256, 64, 2, 48), 2), HasSubstr("--max-micro-batch-size=48"));
}

TEST(Solve, AccumulationNeedsMoreThanCap_NamesTheAccumulationThatFits) {
  EXPECT_EQ(Solved(Batch(128, {}, 1, 48), 2),
            "--global-batch-size=128 with --grad-accum-steps=1 on 2 ranks needs a micro-batch of "
            "64, above --max-micro-batch-size=48; nearest: --global-batch-size=96, or "
            "--grad-accum-steps=2");
}

TEST(Solve, NothingThatFixesTheBatch_SaysWhatToGive) {
  EXPECT_THAT(Solved(Request(), 2), HasSubstr("give --global-batch-size or --micro-batch-size"));
  EXPECT_THAT(Solved(Batch({}, {}, 4), 2), HasSubstr("--grad-accum-steps=4 alone"));
  EXPECT_THAT(Solved(Batch({}, {}, {}, 4), 2), HasSubstr("--max-micro-batch-size=4 alone"));
}

TEST(Solve, NumberBelowRange_RefusedByFlag) {
  EXPECT_THAT(Solved(Batch(0, {}, {}), 1), HasSubstr("--global-batch-size=0 is out of range"));
  EXPECT_THAT(Solved(Batch(-8, {}, {}), 1), HasSubstr("--global-batch-size=-8 is out of range"));
  EXPECT_THAT(Solved(Batch({}, 0, {}), 1), HasSubstr("--micro-batch-size=0 is out of range"));
  EXPECT_THAT(Solved(Batch(8, {}, 0), 1), HasSubstr("--grad-accum-steps=0 is out of range"));
  EXPECT_THAT(Solved(Batch(8, {}, {}, 0), 1), HasSubstr("--max-micro-batch-size=0"));
  EXPECT_THAT(Solved(Batch(8, {}, {}), 0), HasSubstr("world of 0 ranks is out of range"));
  EXPECT_THAT(Solved(Batch(8, {}, {}), -1), HasSubstr("world of -1 ranks is out of range"));
}

TEST(Solve, HugeNumbers_RefusedWithoutOverflow) {
  EXPECT_THAT(Solved(Batch(kHuge, {}, {}), 1), HasSubstr("is out of range"));
  EXPECT_THAT(Solved(Batch({}, kHuge, kHuge), 2), HasSubstr("is out of range"));
  EXPECT_THAT(Solved(Batch(8, {}, {}), kHuge), HasSubstr("is out of range"));
  constexpr std::int64_t kGlobal = std::int64_t{1} << 40U;
  constexpr std::int64_t kShare = std::int64_t{1} << 32U;
  EXPECT_THAT(Solved(Batch({}, kShare, kShare), kGlobal), HasSubstr("is beyond"));
  EXPECT_THAT(Solved(Batch(64, kShare, kShare), kGlobal), HasSubstr("is too large, not 64"));
  EXPECT_THAT(Solved(Batch(kGlobal, kShare, {}), 3), HasSubstr("samples for each of 3 ranks"));
  EXPECT_THAT(Solved(Batch(kGlobal, {}, {}, 3), 1),
              HasSubstr("beyond 4294967296; nearest: --global-batch-size=4294967296"));
  EXPECT_EQ(Solved(Batch(kGlobal, {}, {}, 3), kGlobal), "1 x 1 x 1099511627776 = 1099511627776");
  EXPECT_EQ(Solved(Batch(1000000000000, {}, {}, 48), 1000000),
            "40 x 25000 x 1000000 = 1000000000000");
}

TEST(Divisors, EveryNumber_AgreesWithSearchByHand) {
  for (std::int64_t number = 1; number <= 3000; ++number) {
    const Divisors divisors(number);
    std::int64_t best = 1;
    for (std::int64_t limit = 1; limit <= number; ++limit) {
      best = number % limit == 0 ? limit : best;
      ASSERT_EQ(divisors.AtMost(limit), best) << number << " up to " << limit;
      const std::int64_t above = divisors.AtLeast(limit);
      ASSERT_TRUE(number % above == 0 && above >= limit) << number << " from " << limit;
      ASSERT_TRUE(best == limit ? above == limit
                                : number / above == divisors.AtMost(number / limit));
    }
  }
}

TEST(Divisors, TwoLargePrimes_AreFound) {
  // Among them the largest square of a prime and the largest prime below 2^32.
  EXPECT_EQ(Divisors(std::int64_t{65521} * 65521).AtMost(4000000000), 65521);
  EXPECT_EQ(Divisors(std::int64_t{65521} * 65519).AtMost(65520), 65519);
  EXPECT_EQ(Divisors(std::int64_t{1627} * 2639789).AtMost(2000000), 1627);
  EXPECT_EQ(Divisors(4294967291).AtMost(4294967290), 1);
  EXPECT_EQ(Divisors(4294967296).AtMost(4294967295), 2147483648);
  EXPECT_EQ(Divisors(3 * 5 * 17 * 257 * std::int64_t{65537}).AtLeast(65538), 196611);
}

Request Rate(std::optional<double> base_lr, std::optional<std::int64_t> base_batch,
             std::optional<LrScaling> scaling, std::int64_t global = 256) {
  Request request = Batch(global, {}, {});
  request.base_lr = base_lr;
  request.base_batch_size = base_batch;
  request.lr_scaling = scaling;
  return request;
}

TEST(LearningRate, Absent_StaysAbsent) {
  const auto plan = Solve(Batch(32, {}, {}), 1);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->learning_rate.has_value());
}

TEST(LearningRate, NoScaling_IsTheBaseRateWhateverTheBatch) {
  EXPECT_DOUBLE_EQ(*Solve(Rate(0.1, {}, {}), 8)->learning_rate, 0.1);
  EXPECT_DOUBLE_EQ(*Solve(Rate(0.1, 32, LrScaling::kNone), 8)->learning_rate, 0.1);
}

TEST(LearningRate, Linear_FollowsTheGlobalBatch) {
  EXPECT_DOUBLE_EQ(*Solve(Rate(0.001, 32, LrScaling::kLinear), 8)->learning_rate, 0.008);
  EXPECT_DOUBLE_EQ(*Solve(Rate(0.1, 256, LrScaling::kLinear, 8192), 8)->learning_rate, 3.2);
}

TEST(LearningRate, Sqrt_FollowsTheRootOfTheRatio) {
  EXPECT_DOUBLE_EQ(*Solve(Rate(0.001, 64, LrScaling::kSqrt), 8)->learning_rate, 0.002);
}

TEST(LearningRate, SameGlobalAtAnotherWorld_IsTheSameRate) {
  for (const std::int64_t world : {1, 2, 4, 8, 16}) {
    EXPECT_EQ(*Solve(Rate(0.001, 32, LrScaling::kLinear), world)->learning_rate, 0.008);
  }
}

TEST(LearningRate, ScalingWithoutItsBase_NamesWhatIsMissing) {
  EXPECT_THAT(
      Solved(Rate({}, {}, LrScaling::kLinear), 1),
      AllOf(HasSubstr("--lr-scaling=linear"), HasSubstr("--base-lr and --base-batch-size")));
  EXPECT_THAT(Solved(Rate(0.1, {}, LrScaling::kSqrt), 1),
              AllOf(HasSubstr("--lr-scaling=sqrt"), HasSubstr("give --base-batch-size too")));
  EXPECT_THAT(Solved(Rate({}, 32, LrScaling::kLinear), 1), HasSubstr("give --base-lr too"));
}

TEST(LearningRate, NotAPositiveNumber_Refused) {
  for (const double rate : {0.0, -0.1, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(Solved(Rate(rate, {}, {}), 1), HasSubstr("--base-lr="));
  }
  EXPECT_THAT(Solved(Rate(0.1, 0, LrScaling::kLinear), 1), HasSubstr("--base-batch-size=0"));
  EXPECT_THAT(Solved(Rate(1e308, 1, LrScaling::kLinear), 1), HasSubstr("out of a double's range"));
}

TEST(Warmup, Steps_ArePassedOnOrZero) {
  Request request = Batch(32, {}, {});
  EXPECT_EQ(Solve(request, 1)->warmup_steps, 0);
  request.warmup_steps = 500;
  EXPECT_EQ(Solve(request, 1)->warmup_steps, 500);
  request.warmup_steps = -1;
  EXPECT_THAT(Solved(request, 1), HasSubstr("--warmup-steps=-1 is out of range"));
}

TEST(Merge, LauncherWithoutBatch_TakesTheProgramsBatch) {
  Request launcher;
  launcher.base_lr = 0.5;
  launcher.max_micro_batch_size = 8;
  Request program = Batch(32, {}, 2, 16);
  program.base_lr = 0.1;
  program.warmup_steps = 10;
  Request expected = Batch(32, {}, 2, 8);
  expected.base_lr = 0.5;
  expected.warmup_steps = 10;
  EXPECT_EQ(Merge(launcher, program), expected);
}

TEST(Merge, LauncherWithAnyBatchNumber_TakesNoneFromTheProgram) {
  const Request program = Batch(32, 8, 2);
  EXPECT_EQ(Merge(Batch(64, {}, {}), program), Batch(64, {}, {}));
  EXPECT_EQ(Merge(Batch({}, 4, {}), program), Batch({}, 4, {}));
  EXPECT_EQ(Merge(Batch({}, {}, 4), program), Batch({}, {}, 4));
}

TEST(Merge, EveryOtherField_IsTheLaunchersWhereGiven) {
  Request launcher;
  launcher.base_batch_size = 64;
  launcher.lr_scaling = LrScaling::kNone;
  launcher.warmup_steps = 0;
  Request program = Batch(32, {}, {});
  program.base_lr = 0.1;
  program.base_batch_size = 32;
  program.lr_scaling = LrScaling::kLinear;
  program.warmup_steps = 7;
  Request expected = Batch(32, {}, {});
  expected.base_lr = 0.1;
  expected.base_batch_size = 64;
  expected.lr_scaling = LrScaling::kNone;
  expected.warmup_steps = 0;
  EXPECT_EQ(Merge(launcher, program), expected);
}

TEST(Merge, WithNothing_ChangesNothing) {
  const Request request = Rate(0.1, 32, LrScaling::kLinear);
  EXPECT_EQ(Merge(request, Request()), request);
  EXPECT_EQ(Merge(Request(), request), request);
}

// The plan after the world changed from `before` to `after`.
std::string Held(const Request& request, std::int64_t before, std::int64_t after) {
  const auto plan = Solve(request, before);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return Solved(HoldGlobal(request, *plan), after);
}

TEST(HoldGlobal, SmallerWorld_AccumulatesMore) {
  EXPECT_EQ(Held(Batch(128, {}, {}), 4, 2), "32 x 2 x 2 = 128");
  EXPECT_EQ(Held(Batch({}, 32, {}), 4, 2), "32 x 2 x 2 = 128");
  EXPECT_EQ(Held(Batch({}, 32, {}), 4, 1), "32 x 4 x 1 = 128");
  EXPECT_EQ(Held(Batch(128, 16, 2), 4, 2), "16 x 4 x 2 = 128");
}

TEST(HoldGlobal, LargerWorld_AccumulatesLessThenShrinksMicro) {
  EXPECT_EQ(Held(Batch(128, 16, {}), 2, 4), "16 x 2 x 4 = 128");
  EXPECT_EQ(Held(Batch(128, 16, {}), 2, 16), "8 x 1 x 16 = 128");
}

TEST(HoldGlobal, MicroThatNoLongerDivides_IsACap) {
  // 120 on 4 ranks as 15 x 2; on 3 ranks 40 each: 10 is the largest below 15.
  EXPECT_EQ(Held(Batch(120, 15, {}), 4, 3), "10 x 4 x 3 = 120");
}

TEST(HoldGlobal, CapOfTheUser_OutlivesASmallMicro) {
  // Cap 48: 32 on 2 ranks, 16 on 8, and 32 again when they are 2 again.
  const Request request = Batch(128, {}, {}, 48);
  const auto eight = Solve(HoldGlobal(request, *Solve(request, 2)), 8);
  ASSERT_TRUE(eight.ok());
  EXPECT_EQ(eight->micro_batch_size, 16);
  EXPECT_EQ(Solved(HoldGlobal(request, *eight), 2), "32 x 2 x 2 = 128");
}

TEST(HoldGlobal, CapAndMicro_TheLowerBinds) {
  const auto plan = Solve(Batch(128, 16, {}, 48), 2);
  EXPECT_EQ(HoldGlobal(Batch(128, 16, {}, 48), *plan).max_micro_batch_size, 16);
}

TEST(HoldGlobal, LearningRate_Stays) {
  const Request request = Rate(0.001, 32, LrScaling::kLinear);
  const auto plan = Solve(request, 8);
  EXPECT_EQ(Solve(HoldGlobal(request, *plan), 4)->learning_rate, plan->learning_rate);
}

TEST(HoldGlobal, WorldThatCannotShareIt_FailsWithTheNeighbours) {
  EXPECT_THAT(Held(Batch(128, {}, {}), 4, 3), HasSubstr("--global-batch-size=126 or 129"));
}

}  // namespace
}  // namespace ddl::plan
