// Batch policies, the schedule and Adam: the worked examples of the manual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Numbers {
  std::optional<std::int64_t> global = std::nullopt;
  std::optional<std::int64_t> micro = std::nullopt;
  std::optional<std::int64_t> accumulation = std::nullopt;
  std::optional<std::int64_t> cap = std::nullopt;
};

Request Asked(BatchPolicy policy, const Numbers& numbers) {
  Request request;
  request.batch_policy = policy;
  request.global_batch_size = numbers.global;
  request.micro_batch_size = numbers.micro;
  request.grad_accum_steps = numbers.accumulation;
  request.max_micro_batch_size = numbers.cap;
  return request;
}

// "micro x accumulation x world: global", or the error's text.
std::string Solved(const Request& request, std::int64_t world) {
  const auto plan = Solve(request, world);
  if (!plan.ok()) {
    return std::string(plan.status().message());
  }
  return std::to_string(plan->micro_batch_size) + " x " + std::to_string(plan->grad_accum_steps) +
         " x " + std::to_string(world) + ": " + std::to_string(plan->global_batch_size);
}

constexpr BatchPolicy kEvery[] = {BatchPolicy::kFail, BatchPolicy::kNearest, BatchPolicy::kExact};

TEST(BatchPolicy, WorldThatSharesIt_IsTheSameUnderEach) {
  for (const BatchPolicy policy : kEvery) {
    const Request request = Asked(policy, {.global = 48, .micro = 4});
    EXPECT_EQ(Solved(request, 4), "4 x 3 x 4: 48");
    EXPECT_EQ(Solved(request, 3), "4 x 4 x 3: 48");
    EXPECT_EQ(Solved(request, 2), "4 x 6 x 2: 48");
    const Request wide = Asked(policy, {.global = 512, .micro = 4});
    EXPECT_EQ(Solved(wide, 16), "4 x 8 x 16: 512");
    EXPECT_EQ(Solved(wide, 32), "4 x 4 x 32: 512");
    EXPECT_EQ(Solved(wide, 64), "4 x 2 x 64: 512");
    EXPECT_EQ(Solved(Asked(policy, {.global = 1024, .cap = 64}), 8), "64 x 2 x 8: 1024");
    EXPECT_EQ(Solved(Asked(policy, {.global = 128, .cap = 48}), 2), "32 x 2 x 2: 128");
  }
}

TEST(BatchPolicy, WorldThatCannotShareIt_IsWhatThePolicySays) {
  EXPECT_EQ(Solved(Asked(BatchPolicy::kFail, {.global = 48, .micro = 4}), 5),
            "--global-batch-size=48 is no multiple of --micro-batch-size=4 x 5 ranks; nearest: "
            "--global-batch-size=40 or 60, or --batch-policy=nearest or exact");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 48, .micro = 4}), 5), "2 x 5 x 5: 50");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kExact, {.global = 48, .micro = 4}), 5), "4 x 3 x 5: 48");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 48}), 5), "10 x 1 x 5: 50");
}

TEST(BatchPolicy, MicroThatDoesNotDivide_IsACap) {
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 120, .micro = 15}), 3),
            "10 x 4 x 3: 120");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kExact, {.global = 120, .micro = 15}), 3), "14 x 3 x 3: 120");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kExact, {.global = 97, .cap = 48}), 1), "33 x 3 x 1: 97");
}

TEST(BatchPolicy, PrimeShare_NearestMovesItAndFailSaysSo) {
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 1021, .cap = 64}), 1),
            "60 x 17 x 1: 1020");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kExact, {.global = 1021, .cap = 64}), 1),
            "64 x 16 x 1: 1021");
  Request request = Asked(BatchPolicy::kFail, {.global = 1021, .cap = 64});
  EXPECT_EQ(Solved(request, 1), "1 x 1021 x 1: 1021");
  EXPECT_THAT(Warnings(request, *Solve(request, 1)),
              ElementsAre("micro-batches of up to 64 fit, but the 1021 samples of a rank split "
                          "evenly into no more than 1: --global-batch-size=1020 would train "
                          "faster"));
  request.min_micro_batch_size = 8;
  EXPECT_EQ(Solved(request, 1),
            "the 1021 samples that --global-batch-size=1021 gives a rank of 1 split evenly into "
            "micro-batches of 1 at most, below --min-micro-batch-size=8; nearest: "
            "--global-batch-size=1020, or --min-micro-batch-size=1, or --batch-policy=nearest or "
            "exact");
  request.batch_policy = BatchPolicy::kNearest;
  EXPECT_EQ(Solved(request, 1), "60 x 17 x 1: 1020");
  EXPECT_THAT(Warnings(request, *Solve(request, 1)), IsEmpty());
  EXPECT_EQ(Compare(request, *Solve(request, 1)),
            "global batch 1021 cannot be split evenly on 1 rank into micro-batches near the 64 "
            "that fit: 1020 is used (--batch-policy=nearest)");
}

TEST(BatchPolicy, AccumulationThatSplitsBelowTheFloor_IsRefused) {
  Request request = Asked(BatchPolicy::kFail, {.global = 64, .accumulation = 8});
  request.min_micro_batch_size = 6;
  EXPECT_EQ(Solved(request, 2),
            "the 32 samples that --global-batch-size=64 gives a rank of 2 split evenly into "
            "micro-batches of 4, below --min-micro-batch-size=6; nearest: --global-batch-size=96, "
            "or --grad-accum-steps=4, or --min-micro-batch-size=4, or --batch-policy=nearest or "
            "exact");
}

TEST(BatchPolicy, AccumulationGiven_Stays) {
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 48, .accumulation = 3}), 5),
            "3 x 3 x 5: 45");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kExact, {.global = 48, .accumulation = 3}), 5),
            "4 x 3 x 5: 48");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 48, .accumulation = 3, .cap = 2}), 5),
            "--global-batch-size=48 with --grad-accum-steps=3 on 5 ranks needs a micro-batch of 4, "
            "above --max-micro-batch-size=2; nearest: --global-batch-size=30, or "
            "--grad-accum-steps=5");
  EXPECT_EQ(
      Solved(Asked(BatchPolicy::kExact, {.global = 48, .accumulation = 11}), 5),
      "--grad-accum-steps=11 is more than the 10 samples that --global-batch-size=48 gives to "
      "one of 5 ranks; nearest: --global-batch-size=55, or --grad-accum-steps=10");
}

TEST(BatchPolicy, AllThree_HoldTheGlobalBatchAtOtherWorlds) {
  const Request request =
      Asked(BatchPolicy::kNearest, {.global = 48, .micro = 4, .accumulation = 3});
  EXPECT_EQ(Solved(request, 4), "4 x 3 x 4: 48");
  EXPECT_EQ(Solved(request, 3), "4 x 4 x 3: 48");
  EXPECT_EQ(Solved(request, 5), "2 x 5 x 5: 50");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 50, .micro = 4, .accumulation = 3}), 4),
            "--global-batch-size=50, --micro-batch-size=4 and --grad-accum-steps=3 do not multiply "
            "out on any number of ranks: 4 x 3 is 12, no divisor of 50; nearest: "
            "--global-batch-size=48 or 60");
}

TEST(BatchPolicy, FewerSamplesThanRanks_NearestGivesEachOne) {
  EXPECT_EQ(Solved(Asked(BatchPolicy::kNearest, {.global = 3}), 8), "1 x 1 x 8: 8");
  EXPECT_EQ(Solved(Asked(BatchPolicy::kExact, {.global = 3}), 8),
            "--global-batch-size=3 is less than a sample for each of 8 ranks; nearest: "
            "--global-batch-size=8");
}

TEST(HoldGlobal, NearestAtOneWorld_IsTheNumberAskedForAgainAtTheNext) {
  const Request request = Asked(BatchPolicy::kNearest, {.global = 48, .micro = 4});
  const Plan five = *Solve(request, 5);
  ASSERT_EQ(five.global_batch_size, 50);
  EXPECT_EQ(Solved(HoldGlobal(request, five), 4), "4 x 3 x 4: 48");
}

// Four factorisations of the same global batch: (world, accumulation).
TEST(LearningRate, SameGlobalByAnyFactorisation_IsTheSameRateAndWarmup) {
  for (const auto& [micro, accumulation, world] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
           {16, 8, 1}, {16, 4, 2}, {16, 2, 4}, {16, 1, 8}, {32, 1, 4}, {4, 8, 4}}) {
    Request request = Asked(BatchPolicy::kFail, {.micro = micro, .accumulation = accumulation});
    request.base_lr = 0.1;
    request.base_batch_size = 32;
    request.warmup_steps = 5;
    EXPECT_EQ(*Solve(request, world)->learning_rate, 0.1);  // off unless asked
    request.lr_scaling = LrScaling::kLinear;
    const Plan plan = *Solve(request, world);
    EXPECT_EQ(plan.global_batch_size, 128);
    EXPECT_EQ(*plan.learning_rate, 0.4);
    EXPECT_EQ(plan.warmup_steps, 5);
    EXPECT_EQ(plan.warmup_samples, 640);
  }
}

TEST(LearningRate, NearestGlobal_FollowsTheActual) {
  Request request = Asked(BatchPolicy::kNearest, {.global = 48, .micro = 4});
  request.base_lr = 0.1;
  request.base_batch_size = 12;
  request.lr_scaling = LrScaling::kLinear;
  EXPECT_DOUBLE_EQ(*Solve(request, 4)->learning_rate, 0.4);
  EXPECT_DOUBLE_EQ(*Solve(request, 5)->learning_rate, 0.1 * 50 / 12);
  request.batch_policy = BatchPolicy::kExact;
  EXPECT_DOUBLE_EQ(*Solve(request, 5)->learning_rate, 0.4);
}

Request Scheduled() {
  Request request = Asked(BatchPolicy::kNearest, {.global = 48, .micro = 4});
  request.base_lr = 0.1;
  return request;
}

std::string Refusal(const Request& request, std::int64_t world = 4) {
  const auto plan = Solve(request, world);
  EXPECT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(plan.status().message());
}

TEST(Warmup, StepsCountAtTheBatchAskedFor_WhateverTheActual) {
  Request request = Scheduled();
  request.warmup_steps = 100;
  EXPECT_EQ(Solve(request, 4)->warmup_samples, 4800);
  EXPECT_EQ(Solve(request, 4)->warmup_steps, 100);
  EXPECT_EQ(Solve(request, 5)->warmup_samples, 4800);
  EXPECT_EQ(Solve(request, 5)->warmup_steps, 96);
}

TEST(Warmup, RatioAndEpochs_AreOfTheirSamples) {
  Request request = Scheduled();
  request.warmup_ratio = 0.03;
  request.total_samples = 100000;
  EXPECT_EQ(Solve(request, 4)->warmup_samples, 3000);
  EXPECT_EQ(Solve(request, 4)->warmup_steps, 63);
  request.warmup_ratio.reset();
  request.warmup_epochs = 2.5;
  request.epoch_samples = 1000;
  EXPECT_EQ(Solve(request, 4)->warmup_samples, 2500);
}

TEST(Warmup, TwoLengths_AreRefusedBothNamed) {
  Request request = Scheduled();
  request.warmup_steps = 5;
  request.warmup_epochs = 1;
  EXPECT_EQ(Refusal(request),
            "--warmup-steps=5 and --warmup-epochs=1 are lengths of the one warm-up; give one of "
            "them");
}

TEST(Warmup, LengthWithoutItsWhole_SaysWhatIsMissing) {
  Request request = Scheduled();
  request.warmup_ratio = 0.5;
  EXPECT_EQ(Refusal(request), "--warmup-ratio=0.5 needs --total-samples; give it too");
  request.warmup_ratio.reset();
  request.warmup_epochs = 1;
  EXPECT_EQ(Refusal(request), "--warmup-epochs=1 needs --epoch-samples; give it too");
}

TEST(Warmup, StartNotBelowTheRate_IsRefused) {
  Request request = Scheduled();
  request.warmup_start_lr = 0.05;
  EXPECT_EQ(Solve(request, 4)->warmup_start_lr, 0.05);
  request.warmup_start_lr = 0.1;
  EXPECT_THAT(Refusal(request), AllOf(HasSubstr("--warmup-start-lr=0.1 is not below"),
                                      HasSubstr("nearest: --warmup-start-lr=0")));
}

TEST(TotalSteps, IncompleteLastStepOfEachEpoch_Counts) {
  Request request = Scheduled();
  EXPECT_EQ(Solve(request, 4)->total_steps, 0);
  request.total_samples = 250;
  EXPECT_EQ(Solve(request, 4)->total_steps, 6);
  request.epoch_samples = 100;  // 48, 48, 4 twice, and 48, 2
  EXPECT_EQ(Solve(request, 4)->total_steps, 8);
  request.epoch_samples = 1000;
  EXPECT_EQ(Solve(request, 4)->total_steps, 6);
}

TEST(Decay, Step_NeedsOneIntervalAndHasADefaultFactor) {
  Request request = Scheduled();
  request.lr_decay = LrDecay::kStep;
  EXPECT_THAT(Refusal(request), HasSubstr("give --lr-decay-steps or --lr-decay-epochs"));
  request.lr_decay_steps = 10;
  const Plan plan = *Solve(request, 5);
  EXPECT_EQ(plan.lr_decay_samples, 480);
  EXPECT_EQ(plan.lr_decay_factor, 0.1);
  request.lr_decay_epochs = 30;
  EXPECT_EQ(Refusal(request),
            "--lr-decay-steps=10 and --lr-decay-epochs=30 are intervals of the one decay; give one "
            "of them");
  request.lr_decay_steps.reset();
  EXPECT_EQ(Refusal(request), "--lr-decay-epochs=30 needs --epoch-samples; give it too");
  request.epoch_samples = 1000;
  request.lr_decay_factor = 0.5;
  EXPECT_EQ(Solve(request, 5)->lr_decay_samples, 30000);
  EXPECT_EQ(Solve(request, 5)->lr_decay_factor, 0.5);
  request.lr_decay_factor = 1;
  EXPECT_THAT(Refusal(request), HasSubstr("--lr-decay-factor=1 is out of range"));
}

TEST(Decay, IntervalOrFactorWithoutStep_IsRefused) {
  Request request = Scheduled();
  request.lr_decay_steps = 10;
  EXPECT_EQ(Refusal(request),
            "--lr-decay-steps=10 with --lr-decay=constant: it is for a decay in steps; nearest: "
            "--lr-decay=step");
}

TEST(Decay, CosineAndLinear_NeedATotalBeyondTheWarmup) {
  for (const LrDecay decay : {LrDecay::kCosine, LrDecay::kLinear}) {
    Request request = Scheduled();
    request.lr_decay = decay;
    EXPECT_THAT(Refusal(request), HasSubstr("needs --total-samples"));
    request.warmup_steps = 10;
    request.total_samples = 480;
    EXPECT_THAT(Refusal(request), HasSubstr("nearest: --warmup-steps=9"));
    request.total_samples = 481;
    EXPECT_EQ(Solve(request, 4)->lr_decay, decay);
  }
}

Request WithAdam(std::int64_t global, std::int64_t base) {
  Request request = Asked(BatchPolicy::kFail, {.global = global});
  request.base_lr = 0.001;
  request.base_batch_size = base;
  request.adam_beta2 = 0.98;
  return request;
}

TEST(AdamNumbers, UnlessAsked_AreNotScaled) {
  EXPECT_EQ(Solve(WithAdam(1024, 256), 8)->adam, (Adam{0.9, 0.98, 1e-8}));
  EXPECT_FALSE(Solve(Scheduled(), 4)->adam.has_value());
}

TEST(AdamNumbers, ScaledBySquareRootRule_FollowTheRatioOfBatches) {
  Request request = WithAdam(1024, 256);
  request.lr_scaling = LrScaling::kSqrt;
  request.scale_adam = true;
  const Plan plan = *Solve(request, 8);
  EXPECT_DOUBLE_EQ(*plan.learning_rate, 0.002);
  EXPECT_NEAR(plan.adam->beta1, 0.6, 1e-12);
  EXPECT_NEAR(plan.adam->beta2, 0.92, 1e-12);
  EXPECT_NEAR(plan.adam->eps, 5e-9, 1e-20);
}

TEST(AdamNumbers, WithoutSquareRoot_AreRefusedWithTheReason) {
  Request request = WithAdam(1024, 256);
  request.scale_adam = true;
  request.lr_scaling = LrScaling::kLinear;
  EXPECT_THAT(Refusal(request), AllOf(HasSubstr("--scale-adam with --lr-scaling=linear"),
                                      HasSubstr("nearest: --lr-scaling=sqrt")));
}

TEST(AdamNumbers, BeyondValidity_NameTheLargestGlobalBatch) {
  Request request = WithAdam(2560, 256);  // 10 x (1 - 0.9) is 1
  request.lr_scaling = LrScaling::kSqrt;
  request.scale_adam = true;
  const std::string refusal = Refusal(request, 8);
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("up to a global batch of 2559"),
                    HasSubstr("nearest: --global-batch-size=2552, or without --scale-adam")));
  request.global_batch_size = 2552;
  EXPECT_TRUE(Solve(request, 8).ok());
}

TEST(AdamNumbers, NearestBeyondValidity_TakesTheNextBelow) {
  Request request = WithAdam(2559, 256);
  request.batch_policy = BatchPolicy::kNearest;
  request.lr_scaling = LrScaling::kSqrt;
  request.scale_adam = true;
  EXPECT_EQ(Solve(request, 1)->global_batch_size, 2559);
  EXPECT_EQ(Solve(request, 4)->global_batch_size, 2556);
  request.global_batch_size = 2560;  // asked for: not quietly made another
  EXPECT_THAT(Refusal(request), HasSubstr("up to a global batch of 2559"));
}

TEST(Schedule, NumbersOutOfRange_AreRefusedByFlag) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const auto refused = [](const char* text, const std::function<void(Request&)>& set) {
    Request request = Scheduled();
    set(request);
    EXPECT_THAT(Refusal(request), AllOf(HasSubstr(text), HasSubstr("is out of range")));
  };
  refused("--total-samples=0", [](Request& r) { r.total_samples = 0; });
  refused("--epoch-samples=-1", [](Request& r) { r.epoch_samples = -1; });
  refused("--total-samples=",
          [](Request& r) { r.total_samples = std::numeric_limits<std::int64_t>::max(); });
  refused("--warmup-ratio=1.5", [](Request& r) { r.warmup_ratio = 1.5; });
  refused("--warmup-ratio=nan", [=](Request& r) { r.warmup_ratio = nan; });
  refused("--warmup-epochs=inf", [=](Request& r) { r.warmup_epochs = inf; });
  refused("--warmup-start-lr=nan", [=](Request& r) { r.warmup_start_lr = nan; });
  refused("--lr-decay-epochs=0", [](Request& r) { r.lr_decay_epochs = 0; });
  refused("--lr-decay-steps=0", [](Request& r) { r.lr_decay_steps = 0; });
  refused("--lr-decay-factor=0", [](Request& r) { r.lr_decay_factor = 0; });
  refused("--adam-beta1=1", [](Request& r) { r.adam_beta1 = 1; });
  refused("--adam-beta2=-0.5", [](Request& r) { r.adam_beta2 = -0.5; });
  refused("--adam-eps=0", [](Request& r) { r.adam_eps = 0; });
  refused("--min-micro-batch-size=0", [](Request& r) { r.min_micro_batch_size = 0; });
}

TEST(Schedule, TooManySamples_NamesTheMostThatGo) {
  Request request = Scheduled();
  request.warmup_steps = std::int64_t{1} << 50U;
  EXPECT_THAT(Refusal(request), HasSubstr("nearest: --warmup-steps=23456248059221"));
  request.warmup_steps = 23456248059221;
  EXPECT_TRUE(Solve(request, 4).ok());
}

}  // namespace
}  // namespace ddl::plan
