// Keys, barriers and plan proposals within a round.
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

using JobWords = Harness;

TEST_F(JobWords, KeyWantedFirst_IsAnsweredWhenWritten) {
  StartJob(2);
  Give(KeyWanted{Ref("b"), 1, "nccl"});
  EXPECT_FALSE(Told<KeyValue>("b").has_value());
  Give(KeyWritten{Ref("a"), 1, "nccl", "id"});
  ASSERT_TRUE(Told<KeyValue>("b").has_value());
  EXPECT_EQ(Told<KeyValue>("b")->value, "id");
  EXPECT_EQ(Told<KeyValue>("b")->round, 1);
  EXPECT_EQ(Told<KeyValue>("a")->value, "id") << "the writer is told what holds";
}

TEST_F(JobWords, KeyWrittenFirst_IsAnsweredAtOnce) {
  StartJob(2);
  Give(KeyWritten{Ref("a"), 1, "nccl", "id"});
  Give(KeyWanted{Ref("b"), 1, "nccl"});
  EXPECT_EQ(Told<KeyValue>("b")->value, "id");
}

TEST_F(JobWords, KeyWrittenTwice_SameIsFineOtherIsRefused) {
  StartJob(1);
  Give(KeyWritten{Ref("a"), 1, "k", "1"});
  Give(KeyWritten{Ref("a"), 1, "k", "1"});
  EXPECT_TRUE(explains_.empty());
  Give(KeyWritten{Ref("a"), 1, "k", "2"});
  EXPECT_TRUE(Said(Reason::kInvalid));
  EXPECT_EQ(Told<KeyValue>("a")->value, "1") << "the first stays, and its writer is told";
}

TEST_F(JobWords, KeyTooLong_IsRefusedByLimit) {
  StartJob(1);
  Give(KeyWritten{Ref("a"), 1, std::string(1000, 'k'), "1"});
  EXPECT_TRUE(Said(Reason::kLimit));
}

TEST_F(JobWords, KeysOfTheLastRound_AreGone) {
  StartJob(1, 1);
  Give(KeyWritten{Ref("a"), 1, "k", "1"});
  Fail("a", 1, 3);
  Give(KeyWanted{Ref("a"), 1, "k"});
  EXPECT_TRUE(Said(Reason::kStaleRound));
  Stopped("a", 1);
  Give(KeyWanted{Ref("a"), 2, "k"});
  EXPECT_EQ(Told<KeyValue>("a")->round, 1) << "nothing new was told";
  Give(KeyWritten{Ref("a"), 2, "k", "2"});
  EXPECT_EQ(Told<KeyValue>("a")->value, "2");
}

TEST_F(JobWords, Barrier_OpensForAllWhenTheLastNodeCame) {
  StartJob(2);
  Give(BarrierReached{Ref("a"), 1, "x"});
  EXPECT_FALSE(Told<BarrierDone>("a").has_value());
  Give(BarrierReached{Ref("b"), 1, "x"});
  EXPECT_EQ(Told<BarrierDone>("a")->name, "x");
  EXPECT_EQ(Told<BarrierDone>("b")->name, "x");
  Clear();
  Give(BarrierReached{Ref("b"), 1, "x"});
  EXPECT_EQ(TimesTold<BarrierDone>("a"), 0);
  EXPECT_EQ(TimesTold<BarrierDone>("b"), 1);
}

TEST_F(JobWords, PlanProposals_EqualAgreeAndOtherIsRefused) {
  StartJob(3);
  plan::Request request;
  request.global_batch_size = 60;
  Give(PlanProposed{Ref("a"), 1, request});
  ASSERT_TRUE(Told<PlanReply>("a")->plan.has_value());
  EXPECT_EQ(Told<PlanReply>("a")->plan->world_size, 6);
  Give(PlanProposed{Ref("b"), 1, request});
  EXPECT_EQ(Told<PlanReply>("b")->plan, Told<PlanReply>("a")->plan);
  request.global_batch_size = 66;
  Give(PlanProposed{Ref("c"), 1, request});
  EXPECT_FALSE(Told<PlanReply>("c")->plan.has_value());
  EXPECT_NE(Told<PlanReply>("c")->error.find("host-a"), std::string::npos);
  EXPECT_TRUE(Said(Reason::kPlanDiffers));
  EXPECT_EQ(TimesTold<PlanReply>("a"), 1);
}

TEST_F(JobWords, PlanThatCannotBeSolved_IsAnErrorForAllWhoAsk) {
  StartJob(2);
  plan::Request request;
  request.global_batch_size = 7;
  Give(PlanProposed{Ref("a"), 1, request});
  Give(PlanProposed{Ref("b"), 1, request});
  EXPECT_FALSE(Told<PlanReply>("a")->error.empty());
  EXPECT_EQ(Told<PlanReply>("a")->error, Told<PlanReply>("b")->error);
  EXPECT_TRUE(Said(Reason::kPlanImpossible));
}

}  // namespace
}  // namespace ddl::core
