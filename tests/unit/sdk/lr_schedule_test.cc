// LrSchedule: warm-up in equal increments, then the decays, all in samples.
#include "ddl/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "worker_sdk/src/plan_bridge.h"

namespace ddl {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kGlobal = 32;

absl::StatusOr<Plan> Solved(const PlanDefaults& defaults, std::int64_t world) {
  const absl::StatusOr<plan::Plan> plan = plan::Solve(internal::ToCore(defaults), world);
  return plan.ok() ? absl::StatusOr<Plan>(internal::FromCore(*plan)) : plan.status();
}

Plan MakePlan(double rate, std::int64_t warmup_steps, std::int64_t global = kGlobal) {
  Plan plan;
  plan.learning_rate = rate;
  plan.global_batch_size = global;
  plan.warmup_steps = warmup_steps;
  plan.warmup_samples = warmup_steps * global;
  return plan;
}

Plan WithDecay(Plan plan, LrDecay decay, std::int64_t total_steps) {
  plan.lr_decay = decay;
  plan.total_samples = total_steps * plan.global_batch_size;
  return plan;
}

// The rates of the first `steps` steps of `global` samples.
std::vector<double> Rates(const LrSchedule& schedule, std::int64_t global, int steps) {
  std::vector<double> rates;
  for (int step = 0; step < steps; ++step) {
    rates.push_back(schedule.Rate(step * global, global));
  }
  return rates;
}

double RateAt(const LrSchedule& schedule, std::int64_t step) {
  return schedule.Rate(step * kGlobal, kGlobal);
}

std::string Refusal(const Plan& plan) {
  const auto schedule = LrSchedule::Create(plan);
  EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(schedule.status().message());
}

TEST(LrSchedule, NoWarmup_IsThePlansRateFromTheFirstStep) {
  const auto schedule = LrSchedule::Create(MakePlan(0.1, 0));
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(RateAt(*schedule, 0), 0.1);
  EXPECT_EQ(RateAt(*schedule, 1'000'000'000), 0.1);
  EXPECT_EQ(schedule->peak(), 0.1);
}

TEST(LrSchedule, Warmup_RisesInEqualIncrementsToTheRate) {
  const auto schedule = LrSchedule::Create(MakePlan(0.8, 4));
  ASSERT_TRUE(schedule.ok());
  EXPECT_THAT(Rates(*schedule, kGlobal, 6),
              ElementsAre(DoubleEq(0.2), DoubleEq(0.4), DoubleEq(0.6), DoubleEq(0.8), DoubleEq(0.8),
                          DoubleEq(0.8)));
  EXPECT_EQ(RateAt(*schedule, 3), 0.8);  // full, and exactly so
}

TEST(LrSchedule, WarmupFromABaseRate_RisesInEqualIncrements) {
  Plan plan = MakePlan(0.5, 4);
  plan.warmup_start_lr = 0.1;
  const auto schedule = LrSchedule::Create(plan);
  EXPECT_THAT(Rates(*schedule, kGlobal, 5), ElementsAre(DoubleEq(0.2), DoubleEq(0.3), DoubleEq(0.4),
                                                        DoubleEq(0.5), DoubleEq(0.5)));
}

TEST(LrSchedule, SameGlobalByEveryFactorisation_HasTheSameRateAtEachStep) {
  // A warm-up of five steps, full at the fifth, whatever world and accumulation.
  std::vector<std::vector<double>> all;
  for (const auto& [world, accumulation] : {std::pair{1, 8}, {2, 4}, {4, 2}, {8, 1}}) {
    PlanDefaults defaults;
    defaults.micro_batch_size = 4;
    defaults.grad_accum_steps = accumulation;
    defaults.base_lr = 0.1;
    defaults.warmup_steps = 5;
    const auto plan = Solved(defaults, world);
    ASSERT_TRUE(plan.ok()) << plan.status();
    all.push_back(Rates(*LrSchedule::Create(*plan), plan->global_batch_size, 7));
  }
  EXPECT_THAT(all[0], ElementsAre(DoubleNear(0.02, 1e-15), DoubleNear(0.04, 1e-15),
                                  DoubleNear(0.06, 1e-15), DoubleNear(0.08, 1e-15), 0.1, 0.1, 0.1));
  EXPECT_EQ(all[1], all[0]);
  EXPECT_EQ(all[2], all[0]);
  EXPECT_EQ(all[3], all[0]);
}

TEST(LrSchedule, LinearScalingByThreeFactorisations_IsTheSameRateAlsoAfterARestart) {
  // 0.1 at 32 samples, 128 of them.
  for (const auto& [world, micro, accumulation] : {std::tuple{1, 32, 4}, {2, 32, 2}, {4, 8, 4}}) {
    PlanDefaults defaults;
    defaults.micro_batch_size = micro;
    defaults.grad_accum_steps = accumulation;
    defaults.base_lr = 0.1;
    defaults.base_batch_size = 32;
    defaults.lr_scaling = LrScaling::kLinear;
    const auto plan = Solved(defaults, world);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const LrSchedule schedule = *LrSchedule::Create(*plan);
    EXPECT_DOUBLE_EQ(schedule.Rate(0, 128), 0.4);
    // A restart solves and schedules again, in mid-training.
    EXPECT_DOUBLE_EQ(LrSchedule::Create(*Solved(defaults, world))->Rate(12800, 128), 0.4);
  }
}

TEST(LrSchedule, WorldChangesInMidWarmup_NeitherRepeatsNorSkips) {
  // 640 samples of warm-up. After 320, the global batch is 16 and the peak half.
  Plan before = MakePlan(0.8, 20);
  Plan after = MakePlan(0.4, 40, 16);
  ASSERT_EQ(before.warmup_samples, after.warmup_samples);
  const LrSchedule first = *LrSchedule::Create(before);
  const LrSchedule second = *LrSchedule::Create(after);
  EXPECT_DOUBLE_EQ(first.Rate(288, 32), 0.4);  // half of its peak
  EXPECT_DOUBLE_EQ(second.Rate(320, 16), 0.4 * 336 / 640);
  EXPECT_LT(second.Rate(608, 16), 0.4);
  EXPECT_EQ(second.Rate(624, 16), 0.4);  // full when 640 samples are in
  EXPECT_EQ(second.Rate(640, 16), 0.4);
}

TEST(LrSchedule, IncompleteStepInWarmup_IsFullNoLaterThanItsSamples) {
  const LrSchedule schedule = *LrSchedule::Create(MakePlan(1.0, 2));
  EXPECT_DOUBLE_EQ(schedule.Rate(0, 10), 10.0 / 64);
  EXPECT_EQ(schedule.Rate(63, 1), 1.0);
  EXPECT_EQ(schedule.Rate(40, 32), 1.0);
}

TEST(LrSchedule, Cosine_FallsFromTheRateToZero) {
  const auto schedule = LrSchedule::Create(WithDecay(MakePlan(1.0, 10), LrDecay::kCosine, 110));
  ASSERT_TRUE(schedule.ok());
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 9), 1.0);
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 10), 1.0);
  EXPECT_NEAR(RateAt(*schedule, 60), 0.5, 1e-12);
  EXPECT_NEAR(RateAt(*schedule, 35), 0.853553390593, 1e-9);
  EXPECT_NEAR(RateAt(*schedule, 110), 0.0, 1e-12);
  EXPECT_NEAR(RateAt(*schedule, 500), 0.0, 1e-12);
}

TEST(LrSchedule, Linear_FallsFromTheRateToZero) {
  const auto schedule = LrSchedule::Create(WithDecay(MakePlan(2.0, 10), LrDecay::kLinear, 110));
  ASSERT_TRUE(schedule.ok());
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 10), 2.0);
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 35), 1.5);
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 85), 0.5);
  EXPECT_EQ(RateAt(*schedule, 110), 0.0);
  EXPECT_EQ(RateAt(*schedule, 500), 0.0);
}

TEST(LrSchedule, Step_FallsAtEachIntervalFromTheStartOfTraining) {
  Plan plan = MakePlan(1.0, 5);
  plan.lr_decay = LrDecay::kStep;
  plan.lr_decay_samples = 30 * kGlobal;
  plan.lr_decay_factor = 0.1;
  const auto schedule = LrSchedule::Create(plan);
  ASSERT_TRUE(schedule.ok());
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 0), 0.2);
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 29), 1.0);
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 30), 0.1);
  EXPECT_DOUBLE_EQ(RateAt(*schedule, 59), 0.1);
  EXPECT_NEAR(RateAt(*schedule, 60), 0.01, 1e-15);
  EXPECT_GE(RateAt(*schedule, 30'000'000), 0.0);
}

TEST(LrSchedule, SamplesBeyondAllSense_DoNotOverflow) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62U;
  for (const LrDecay decay : {LrDecay::kConstant, LrDecay::kCosine, LrDecay::kLinear}) {
    const LrSchedule schedule = *LrSchedule::Create(WithDecay(MakePlan(1.0, 10), decay, 110));
    EXPECT_TRUE(std::isfinite(schedule.Rate(kMost, kMost)));
    EXPECT_EQ(schedule.Rate(0, kMost), 1.0);
  }
}

TEST(LrSchedule, PlanWithoutRate_IsRefused) {
  EXPECT_THAT(Refusal(Plan()), HasSubstr("--base-lr"));
}

TEST(LrSchedule, DecayWithoutSamplesAfterWarmup_IsRefused) {
  EXPECT_THAT(Refusal(WithDecay(MakePlan(1.0, 10), LrDecay::kCosine, 10)),
              HasSubstr("cosine decay over 320 samples leaves none after a warm-up of 320"));
  EXPECT_THAT(Refusal(WithDecay(MakePlan(1.0, 0), LrDecay::kLinear, 0)),
              HasSubstr("--total-samples"));
}

TEST(LrSchedule, StepDecayWithoutIntervalOrFactor_IsRefused) {
  Plan plan = MakePlan(1.0, 0);
  plan.lr_decay = LrDecay::kStep;
  EXPECT_THAT(Refusal(plan), HasSubstr("--lr-decay-steps"));
  plan.lr_decay_samples = 100;
  EXPECT_THAT(Refusal(plan), HasSubstr("--lr-decay-factor"));
  plan.lr_decay_factor = 0.1;
  EXPECT_TRUE(LrSchedule::Create(plan).ok());
}

}  // namespace
}  // namespace ddl
