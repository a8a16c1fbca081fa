// One plan, or a refusal that names both sides.
#include "agent/core/plan_agreement.h"

#include <gtest/gtest.h>

#include <string>

namespace ddl::core {
namespace {

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
  const PlanAgreement agreement{plan::Request()};
  const auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok());
  EXPECT_FALSE(agreed->plan.has_value());
  EXPECT_TRUE(agreed->request.empty());
}

TEST(PlanAgreement, RateWithoutBatch_NoPlanYetButTheRequestIsHandedOut) {
  plan::Request request;
  request.base_lr = 0.1;
  const PlanAgreement agreement(request);
  const auto agreed = agreement.ForWorld(4);
  ASSERT_TRUE(agreed.ok());
  EXPECT_FALSE(agreed->plan.has_value());
  EXPECT_EQ(agreed->request, request);
}

TEST(PlanAgreement, WorldShrinks_GlobalBatchIsHeld) {
  PlanAgreement agreement(Micro(8));
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
  EXPECT_EQ(agreed->request, Micro(8));
}

TEST(PlanAgreement, RoundThatNeverStarted_HoldsNothing) {
  const PlanAgreement agreement(Micro(8));
  ASSERT_TRUE(agreement.ForWorld(4).ok());
  EXPECT_EQ(agreement.ForWorld(2)->plan->global_batch_size, 16);
}

TEST(PlanAgreement, Impossible_IsAnError) {
  const PlanAgreement agreement(Global(7));
  EXPECT_EQ(agreement.ForWorld(2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlanAgreement, FirstProposal_DefinesTheRoundAndEqualOnesAgree) {
  PlanAgreement agreement{plan::Request()};
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  const auto first = agreement.Propose("a", Global(64));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->global_batch_size, 64);
  EXPECT_EQ(*agreement.Propose("b", Global(64)), *first);
}

TEST(PlanAgreement, OtherProposal_IsRefusedNamingBoth) {
  PlanAgreement agreement{plan::Request()};
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
  PlanAgreement agreement(Global(64));
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  EXPECT_EQ(agreement.Propose("a", Global(32))->global_batch_size, 64);
  EXPECT_TRUE(agreement.Propose("b", Global(48)).ok());
}

TEST(PlanAgreement, ProgramsBatch_IsHeldInTheNextRound) {
  PlanAgreement agreement{plan::Request()};
  agreement.RoundStarted(*agreement.ForWorld(4), 4);
  EXPECT_EQ(agreement.Propose("a", Micro(8))->global_batch_size, 32);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  EXPECT_EQ(agreement.Propose("a", Micro(8))->global_batch_size, 32);
}

TEST(PlanAgreement, NobodyGaveABatch_IsAnErrorForAll) {
  plan::Request rate;
  rate.base_lr = 0.1;
  PlanAgreement agreement(rate);
  agreement.RoundStarted(*agreement.ForWorld(2), 2);
  EXPECT_EQ(agreement.Propose("a", plan::Request()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(agreement.Propose("b", plan::Request()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddl::core
