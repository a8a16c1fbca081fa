// One plan, or a refusal that names both sides.
#include "agent/core/plan_agreement.h"

#include <gtest/gtest.h>

#include <string>

namespace ddl::core {
namespace {

constexpr auto kFail = plan::BatchPolicy::kFail;

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
  ASSERT_TRUE(agreement.LowerMicroBatch(8).ok());
  const auto now = agreement.InForce();
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(Batch(*now->plan), "32 = 4 x 2 x 4");
  // The agent solves the same request again and must come to the same plan.
  EXPECT_EQ(*plan::Solve(now->request, 4), *now->plan);
}

TEST(PlanAgreement, OutOfMemory_TheLessonHoldsInLaterRoundsAndWorlds) {
  PlanAgreement agreement(Global(48), kFail);
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  ASSERT_TRUE(agreement.LowerMicroBatch(12).ok());
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
  ASSERT_TRUE(agreement.LowerMicroBatch(5).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "8 = 4 x 2 x 1");
  ASSERT_TRUE(agreement.LowerMicroBatch(2).ok());
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "8 = 1 x 8 x 1");
}

TEST(PlanAgreement, OutOfMemoryWithTheProgramsPlan_BothPlansAreLowered) {
  PlanAgreement agreement(plan::Request(), kFail);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  EXPECT_FALSE(agreement.InForce().has_value());
  EXPECT_EQ(agreement.LowerMicroBatch(8).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(agreement.Propose("a", Micro(8)).ok());
  ASSERT_TRUE(agreement.LowerMicroBatch(8).ok());
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
  ASSERT_TRUE(agreement.LowerMicroBatch(8).ok());
  const absl::Status refused = agreement.LowerMicroBatch(4);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("--min-micro-batch-size=4"), std::string::npos) << refused;
  EXPECT_EQ(Batch(*agreement.InForce()->plan), "8 = 4 x 2 x 1");
}

TEST(PlanAgreement, LessonThatNoDivisorMeets_IsRefusedAndNothingChanges) {
  plan::Request request = Micro(7);
  request.min_micro_batch_size = 2;
  PlanAgreement agreement(request, kFail);
  agreement.RoundStarted(*agreement.ForWorld(1), 1);
  EXPECT_FALSE(agreement.LowerMicroBatch(7).ok());
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
  ASSERT_TRUE(agreement.LowerMicroBatch(17).ok());
  const auto next = agreement.ForWorld(3);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next->plan, *agreement.InForce()->plan);
  EXPECT_EQ(Batch(*next->plan), "51 = 1 x 17 x 3");
  EXPECT_DOUBLE_EQ(*next->plan->learning_rate, 0.102);
  EXPECT_EQ(next->request.learned_max_micro_batch_size, 8) << "not the one that 17 left";
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
  agreement.Learn(4);
  agreement.Learn(6);
  EXPECT_EQ(Batch(*agreement.ForWorld(4)->plan), "32 = 4 x 2 x 4");
  agreement.Forget();
  EXPECT_EQ(Batch(*agreement.ForWorld(4)->plan), "32 = 8 x 1 x 4");
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
