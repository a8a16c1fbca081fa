// LrSchedule: warm-up in equal increments, then constant or cosine.
#include "ddl/lr_schedule.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

Plan MakePlan(double rate, std::int64_t warmup_steps) {
  Plan plan;
  plan.learning_rate = rate;
  plan.warmup_steps = warmup_steps;
  return plan;
}

TEST(LrSchedule, NoWarmup_IsThePlansRateFromTheFirstStep) {
  const auto schedule = LrSchedule::Create(MakePlan(0.1, 0));
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->Rate(0), 0.1);
  EXPECT_EQ(schedule->Rate(1'000'000), 0.1);
  EXPECT_EQ(schedule->peak(), 0.1);
}

TEST(LrSchedule, Warmup_RisesInEqualIncrementsToTheRate) {
  const auto schedule = LrSchedule::Create(MakePlan(0.8, 4));
  ASSERT_TRUE(schedule.ok());
  EXPECT_DOUBLE_EQ(schedule->Rate(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule->Rate(1), 0.4);
  EXPECT_DOUBLE_EQ(schedule->Rate(2), 0.6);
  EXPECT_DOUBLE_EQ(schedule->Rate(3), 0.8);
  EXPECT_DOUBLE_EQ(schedule->Rate(4), 0.8);
}

TEST(LrSchedule, Cosine_FallsFromTheRateToZero) {
  const auto schedule = LrSchedule::Create(MakePlan(1.0, 10), LrDecay::kCosine, 110);
  ASSERT_TRUE(schedule.ok());
  EXPECT_DOUBLE_EQ(schedule->Rate(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule->Rate(10), 1.0);
  EXPECT_NEAR(schedule->Rate(60), 0.5, 1e-12);
  EXPECT_NEAR(schedule->Rate(35), 0.853553390593, 1e-9);
  EXPECT_NEAR(schedule->Rate(110), 0.0, 1e-12);
  EXPECT_NEAR(schedule->Rate(500), 0.0, 1e-12);
}

TEST(LrSchedule, PlanWithoutRate_IsRefused) {
  EXPECT_EQ(LrSchedule::Create(Plan()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LrSchedule, CosineWithoutStepsAfterWarmup_IsRefused) {
  EXPECT_FALSE(LrSchedule::Create(MakePlan(1.0, 10), LrDecay::kCosine, 10).ok());
  EXPECT_FALSE(LrSchedule::Create(MakePlan(1.0, 0), LrDecay::kCosine).ok());
}

}  // namespace
}  // namespace ddl
