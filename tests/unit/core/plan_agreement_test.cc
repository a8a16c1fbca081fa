// One plan, or a refusal that names both sides.
#include "agent/core/plan_agreement.h"

#include <gtest/gtest.h>

#include <string>

namespace ddl::core {
namespace {

constexpr auto kFail = plan::BatchPolicy::kFail;
constexpr auto kExit = PlanAgreement::After::kExit;
constexpr auto kRetry = PlanAgreement::After::kRetry;

plan::Request Micro(std::int64_t micro) {
  plan::Request request;
  request.micro_batch_size = micro;
  return request;
}
plan::Request Global(std::int64_t global) {
  plan::Request request;
  request.global_batch_size = global;
  return request;
}

TEST(PlanAgreement, NothingAsked_NoPlan) {
  const PlanAgreement agreement(plan::Request(), kFail);
  const auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok());
  EXPECT_FALSE(agreed->plan.has_value());
  EXPECT_TRUE(agreed->request.empty());
}

TEST(PlanAgreement, RateWithoutBatch_NoPlanYetButTheRequestIsHandedOut) {
  plan::Request request;
  request.base_lr = 0.1;
  const PlanAgreement agreement(request, kFail);
  const auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok());
  EXPECT_FALSE(agreed->plan.has_value());
  EXPECT_EQ(agreed->request, request);
}

TEST(PlanAgreement, WorldShrinks_GlobalBatchIsHeld) {
  PlanAgreement agreement(Micro(8), kFail);
  auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->plan->global_batch_size, 32);
  agreement.RoundStarted(*agreed, 4);
  agreed = agreement.ForWorld(2);
  ASSERT_TRUE(agreed.ok()) << agreed.status();
  EXPECT_EQ(agreed->plan->global_batch_size, 32);
  EXPECT_EQ(agreed->plan->world_size, 2);
  // The agent solves the same request again and must come to the same plan.
  EXPECT_EQ(*plan::Solve(agreed->request, 2), *agreed->plan);
  agreement.RoundStarted(*agreed, 2);
  agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok());
  plan::Request explained = Micro(8);
  explained.batch_policy = kFail;
  EXPECT_EQ(agreed->request, explained);
}

TEST(PlanAgreement, RoundThatNeverStarted_HoldsNothing) {
  const PlanAgreement agreement(Micro(8), kFail);
  ASSERT_TRUE(agreement.ForWorld(4).ok());
  EXPECT_EQ(agreement.ForWorld(2)->plan->global_batch_size, 16);
}

TEST(PlanAgreement, Impossible_IsAnError) {
  const PlanAgreement agreement(Global(7), kFail);
  EXPECT_EQ(agreement.ForWorld(2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlanAgreement, FirstProposal_DefinesTheRoundAndEqualOnesAgree) {
  PlanAgreement agreement(plan::Request(), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  const auto first = agreement.Propose("a", Global(64));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->global_batch_size, 64);
  EXPECT_EQ(*agreement.Propose("b", Global(64)), *first);
}

TEST(PlanAgreement, OtherProposal_IsRefusedNamingBoth) {
  PlanAgreement agreement(plan::Request(), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  ASSERT_TRUE(agreement.Propose("host-a", Global(64)).ok());
  const auto other = agreement.Propose("host-b", Global(48));
  ASSERT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string text(other.status().message());
  for (const std::string& part : {std::string("host-a"), std::string("host-b"),
                                  plan::Describe(Global(64)), plan::Describe(Global(48))}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(PlanAgreement, FlagsOverrideBothPrograms_DifferentDefaultsAgree) {
  PlanAgreement agreement(Global(64), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  EXPECT_EQ(agreement.Propose("a", Global(32))->global_batch_size, 64);
  EXPECT_TRUE(agreement.Propose("b", Global(48)).ok());
}

TEST(PlanAgreement, ProgramsBatch_IsHeldInTheNextRound) {
  PlanAgreement agreement(plan::Request(), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  EXPECT_EQ(agreement.Propose("a", Micro(8))->global_batch_size, 32);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  EXPECT_EQ(agreement.Propose("a", Micro(8))->global_batch_size, 32);
}

TEST(PlanAgreement, NobodyGaveABatch_IsAnErrorForAll) {
  plan::Request rate;
  rate.base_lr = 0.1;
  PlanAgreement agreement(rate, kFail);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  EXPECT_EQ(agreement.Propose("a", plan::Request()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(agreement.Propose("b", plan::Request()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- out of memory ------------------------------------------------------------

// The batch of a plan, for people who read a failed test.
std::string Batch(const plan::Plan& plan) {
  return std::to_string(plan.global_batch_size) + " = " + std::to_string(plan.micro_batch_size) +
         " x " + std::to_string(plan.grad_accum_steps) + " x " + std::to_string(plan.world_size);
}

TEST(PlanAgreement, OutOfMemory_MicroHalvesAndTheGlobalBatchIsHeld) {
  PlanAgreement agreement(Micro(8), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  ASSERT_TRUE(agreement.LowerMicroBatch(8, kExit).ok());
  const auto now = agreement.InForce();
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(Batch(*now->plan), "32 = 4 x 2 x 4");
  // The agent solves the same request again and must come to the same plan.
  EXPECT_EQ(*plan::Solve(now->request, 4), *now->plan);
}

TEST(PlanAgreement, OutOfMemory_TheLessonHoldsInLaterRoundsAndWorlds) {
  PlanAgreement agreement(Global(48), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  ASSERT_TRUE(agreement.LowerMicroBatch(12, kExit).ok());
  const auto same = agreement.ForWorld(4);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(Batch(*same->plan), "48 = 6 x 2 x 4");
  agreement.RoundStarted(*same, 4);
  const auto smaller = agreement.ForWorld(2);
  ASSERT_TRUE(smaller.ok()) << smaller.status();
  EXPECT_EQ(Batch(*smaller->plan), "48 = 6 x 4 x 2");
  agreement.RoundStarted(*smaller, 2);
  const auto larger = agreement.ForWorld(16);
  ASSERT_TRUE(larger.ok()) << larger.status();
  EXPECT_EQ(Batch(*larger->plan), "48 = 3 x 1 x 16");
}

TEST(PlanAgreement, OutOfMemoryInAPartOfAMicroBatch_HalvesWhatFailed) {
  PlanAgreement agreement(Micro(8), kFail);
  agreement.RoundStarted(*agreement.ForWorld(1), 1);
  ASSERT_TRUE(agreement.LowerMicroBatch(5, kExit).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "8 = 4 x 2 x 1");
  ASSERT_TRUE(agreement.LowerMicroBatch(2, kExit).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "8 = 1 x 8 x 1");
}

TEST(PlanAgreement, OutOfMemoryWithTheProgramsPlan_BothPlansAreLowered) {
  PlanAgreement agreement(plan::Request(), kFail);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  EXPECT_FALSE(agreement.InForce().has_value());
  EXPECT_EQ(agreement.LowerMicroBatch(8, kExit).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(agreement.Propose("a", Micro(8)).ok());
  ASSERT_TRUE(agreement.LowerMicroBatch(8, kExit).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "16 = 4 x 2 x 2");
  EXPECT_EQ(Batch(*agreement.Propose("b", Micro(8))), "16 = 4 x 2 x 2") << "asked late";
  const auto next = agreement.ForWorld(2);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->plan.has_value());
  EXPECT_EQ(next->request.learned_max_micro_batch_size, 4) << "for a coordinator that is restarted";
  agreement.RoundStarted(*next, 2);
  EXPECT_EQ(Batch(*agreement.Propose("a", Micro(8))), "16 = 4 x 2 x 2");
}

TEST(PlanAgreement, OutOfMemoryAtTheFloor_IsRefusedWithWhatIsLeft) {
  plan::Request request = Micro(8);
  request.min_micro_batch_size = 4;
  PlanAgreement agreement(request, kFail);
  agreement.RoundStarted(*agreement.ForWorld(1), 1);
  ASSERT_TRUE(agreement.LowerMicroBatch(8, kExit).ok());
  const absl::Status refused = agreement.LowerMicroBatch(4, kExit);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("--min-micro-batch-size=4"), std::string::npos) << refused;
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "8 = 4 x 2 x 1");
}

TEST(PlanAgreement, LessonThatNoDivisorMeets_IsRefusedAndNothingChanges) {
  plan::Request request = Micro(7);
  request.min_micro_batch_size = 2;
  PlanAgreement agreement(request, kFail);
  agreement.RoundStarted(*agreement.ForWorld(1), 1);
  EXPECT_FALSE(agreement.LowerMicroBatch(7, kExit).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "7 = 7 x 1 x 1");
  EXPECT_EQ(Batch(*agreement.ForWorld(1)->plan), "7 = 7 x 1 x 1");
}

TEST(PlanAgreement, OutOfMemoryUnderNearest_TheNextRoundHasTheSameBatchAndRate) {
  plan::Request request = Global(50);
  request.base_lr = 0.1;
  request.base_batch_size = 50;
  request.lr_scaling = plan::LrScaling::kLinear;
  PlanAgreement agreement(request, plan::BatchPolicy::kNearest);
  agreement.RoundStarted(*agreement.ForWorld(3), 3);
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "51 = 17 x 1 x 3");
  ASSERT_TRUE(agreement.LowerMicroBatch(17, kExit).ok());
  const auto next = agreement.ForWorld(3);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next->plan, *agreement.InForce()->plan);
  EXPECT_EQ(Batch(*next->plan), "51 = 1 x 17 x 3");
  EXPECT_DOUBLE_EQ(*next->plan->learning_rate, 0.102);
  EXPECT_EQ(next->request.learned_max_micro_batch_size, 9) << "not the one that 17 left";
}

TEST(PlanAgreement, WhatTheProgramMayComplete_IsLeftToIt) {
  plan::Request request = Global(32);
  request.warmup_ratio = 0.25;
  PlanAgreement agreement(request, kFail);
  const auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok()) << agreed.status();
  EXPECT_EQ(agreed->plan->warmup_steps, 0);
  agreement.RoundStarted(*agreed, 4);
  plan::Request program;
  program.total_samples = 3200;
  const auto plan = agreement.Propose("a", program);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->warmup_samples, 800);
}

TEST(PlanAgreement, ScalingWithoutItsBase_GivesNoUnscaledRate) {
  plan::Request request = Global(32);
  request.base_lr = 0.1;
  request.lr_scaling = plan::LrScaling::kLinear;
  const PlanAgreement agreement(request, kFail);
  const auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok()) << agreed.status();
  EXPECT_FALSE(agreed->plan->learning_rate.has_value());
}

TEST(PlanAgreement, LessonLearntElsewhere_CapsTheFirstRound) {
  PlanAgreement agreement(Micro(8), kFail);
  plan::Request lesson;
  for (const std::int64_t cap : {4, 6}) {
    lesson.learned_max_micro_batch_size = cap;
    agreement.Recover({lesson, 0}, 7);
  }
  EXPECT_EQ(Batch(*agreement.ForWorld(4)->plan), "32 = 4 x 2 x 4");
  agreement.Forget();
  EXPECT_EQ(Batch(*agreement.ForWorld(4)->plan), "32 = 8 x 1 x 4");
}

// ---- the coordinator was restarted --------------------------------------------

// What an agent says of the agreement's last plan.
LastPlan Last(const PlanAgreement& agreement, std::int64_t world) {
  return {agreement.InForce()->request, world};
}

plan::Request WithRate(plan::Request request, std::int64_t base) {
  request.base_lr = 0.1;
  request.base_batch_size = base;
  request.lr_scaling = plan::LrScaling::kLinear;
  request.warmup_steps = 10;
  return request;
}

TEST(PlanAgreement, Restarted_HoldsTheGlobalBatchRateAndWarmUp) {
  constexpr auto kNearest = plan::BatchPolicy::kNearest;
  const plan::Request flags = WithRate(Micro(8), 32);
  PlanAgreement before(flags, kNearest);
  before.RoundStarted(*before.ForWorld(4), 4);
  ASSERT_EQ(Batch(*before.InForce()->plan), "32 = 8 x 1 x 4");
  for (const std::int64_t world : {1, 2, 3, 4, 8}) {
    PlanAgreement after(flags, kNearest);
    after.Recover(Last(before, 4), 1);
    EXPECT_EQ(*after.ForWorld(world)->plan, *before.ForWorld(world)->plan) << "world " << world;
  }
  PlanAgreement after(flags, kNearest);
  after.Recover(Last(before, 4), 1);
  const plan::Plan plan = *after.ForWorld(2)->plan;
  EXPECT_EQ(Batch(plan), "32 = 8 x 2 x 2");
  EXPECT_DOUBLE_EQ(*plan.learning_rate, 0.1);
  EXPECT_EQ(plan.warmup_samples, 320);
}

TEST(PlanAgreement, RestartedInALaterWorld_HoldsWhatTheFirstHad) {
  constexpr auto kNearest = plan::BatchPolicy::kNearest;
  for (const plan::Request& flags : {Micro(8), Global(32)}) {
    PlanAgreement before(flags, kNearest);
    before.RoundStarted(*before.ForWorld(4), 4);
    before.RoundStarted(*before.ForWorld(3), 3);
    EXPECT_NE(before.InForce()->plan->global_batch_size, 32) << "the nearest";
    PlanAgreement after(flags, kNearest);
    after.Recover(Last(before, 3), 2);
    for (const std::int64_t world : {1, 2, 3, 4, 6}) {
      EXPECT_EQ(Batch(*after.ForWorld(world)->plan), Batch(*before.ForWorld(world)->plan));
    }
    after.RoundStarted(*after.ForWorld(2), 2);
    EXPECT_EQ(Batch(*after.ForWorld(4)->plan), "32 = 8 x 1 x 4");
  }
}

TEST(PlanAgreement, RestartedWithAFixedAccumulation_SameWorldHasTheSamePlan) {
  plan::Request flags = Global(64);
  flags.grad_accum_steps = 2;
  PlanAgreement before(flags, plan::BatchPolicy::kNearest);
  before.RoundStarted(*before.ForWorld(4), 4);
  PlanAgreement after(flags, plan::BatchPolicy::kNearest);
  after.Recover(Last(before, 4), 1);
  EXPECT_EQ(Batch(*after.ForWorld(4)->plan), "64 = 8 x 2 x 4");
}

TEST(PlanAgreement, Restarted_TheProgramsBatchIsHeldToo) {
  const plan::Request program = WithRate(Micro(8), 32);
  PlanAgreement before(plan::Request(), kFail);
  before.RoundStarted(*before.ForWorld(4), 4);
  ASSERT_TRUE(before.Propose("a", program).ok());
  PlanAgreement after(plan::Request(), kFail);
  after.Recover(Last(before, 4), 1);
  EXPECT_FALSE(after.ForWorld(2)->plan.has_value()) << "it is the program's to ask for";
  after.RoundStarted(*after.ForWorld(2), 2);
  const auto plan = after.Propose("a", program);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Batch(*plan), "32 = 8 x 2 x 2");
  EXPECT_DOUBLE_EQ(*plan->learning_rate, 0.1);
}

TEST(PlanAgreement, Restarted_TheLatestRoundCountsUntilOneStartsHere) {
  PlanAgreement after(Micro(8), kFail);
  after.Recover({Micro(8), 4}, 7);
  after.Recover({Micro(8), 2}, 3);  // it was cut off since
  EXPECT_EQ(after.ForWorld(1)->plan->global_batch_size, 32);
  after.Recover({Micro(8), 8}, 9);
  EXPECT_EQ(after.ForWorld(1)->plan->global_batch_size, 64);
  after.RoundStarted(*after.ForWorld(1), 1);
  after.Recover({Micro(8), 2}, 99);
  EXPECT_EQ(after.ForWorld(2)->plan->global_batch_size, 64);
}

TEST(PlanAgreement, Restarted_TheLessonsHold) {
  PlanAgreement before(Global(62), kFail);
  before.RoundStarted(*before.ForWorld(2), 2);
  ASSERT_TRUE(before.LowerMicroBatch(31, kRetry).ok());
  PlanAgreement after(Global(62), kFail);
  after.Recover(Last(before, 2), 1);
  EXPECT_EQ(*after.ForWorld(2)->plan, *before.InForce()->plan);
}

TEST(PlanAgreement, NonsenseOfAPeer_IsNotPossible) {
  EXPECT_TRUE(PlanAgreement::IsPossible({}).ok());
  EXPECT_TRUE(PlanAgreement::IsPossible({Micro(8), 4}).ok());
  EXPECT_FALSE(PlanAgreement::IsPossible({Micro(8), -4}).ok());
  EXPECT_FALSE(PlanAgreement::IsPossible({Micro(-8), 4}).ok());
  EXPECT_FALSE(PlanAgreement::IsPossible({plan::Request(), 4}).ok());
  plan::Request lesson;
  for (const std::int64_t cap : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX}) {
    lesson.learned_max_micro_batch_size = cap;
    EXPECT_FALSE(PlanAgreement::IsPossible({lesson, 0}).ok()) << cap;
  }
}

// ---- micro-steps that need not be equal -----------------------------------------

TEST(PlanAgreement, ProgramThatGoesOn_MayHaveUnevenMicroStepsFromThenOn) {
  PlanAgreement agreement(Global(62), kFail);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  ASSERT_TRUE(agreement.LowerMicroBatch(31, kRetry).ok());
  const auto now = agreement.InForce();
  EXPECT_EQ(now->request.uneven_micro_steps, true);
  EXPECT_LT(now->plan->grad_accum_steps, 31) << "never 31 micro-steps of one sample";
  EXPECT_EQ(*plan::Solve(now->request, 2), *now->plan);
  EXPECT_EQ(*agreement.ForWorld(2)->plan, *now->plan) << "in later rounds too";
  agreement.Forget();
  EXPECT_FALSE(agreement.ForWorld(2)->request.uneven_micro_steps.has_value());
}

TEST(PlanAgreement, ProgramThatEnds_HasEqualMicroSteps) {
  PlanAgreement agreement(Global(62), kFail);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  ASSERT_TRUE(agreement.LowerMicroBatch(31, kExit).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "62 = 1 x 31 x 2");
  EXPECT_FALSE(agreement.InForce()->request.uneven_micro_steps.has_value());
}

TEST(PlanAgreement, DefaultPolicy_IsTheLastToBeHeard) {
  constexpr auto kNearest = plan::BatchPolicy::kNearest;
  constexpr auto kExact = plan::BatchPolicy::kExact;
  PlanAgreement agreement(Global(8), kNearest);
  EXPECT_EQ(agreement.ForWorld(2)->request.batch_policy, kNearest);
  plan::Request given = Global(8);
  given.batch_policy = kExact;
  EXPECT_EQ(PlanAgreement(given, kNearest).ForWorld(2)->request.batch_policy, kExact);
  PlanAgreement programs(plan::Request(), kNearest);
  programs.RoundStarted(*programs.ForWorld(2), 2);
  ASSERT_TRUE(programs.Propose("a", given).ok());
  EXPECT_EQ(programs.InForce()->request.batch_policy, kExact);
}

}  // namespace
}  // namespace ddl::core
