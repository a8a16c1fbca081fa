// Out of device memory in a round: every member goes on with a smaller micro-batch.
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

class JobMemory : public Harness {
 protected:
  // Two nodes of two workers each, whose launchers ask for micro-batch 8.
  void Start(std::int64_t min_micro = 1) {
    for (const std::string name : {"a", "b"}) {
      AgentConnected hello = Hello(name, 2);
      hello.plan.micro_batch_size = 8;
      hello.plan.min_micro_batch_size = min_micro;
      Connect(hello);
    }
    Clear();
  }
  void Report(const std::string& name, std::int32_t rank, std::int64_t micro,
              std::int64_t step = 7) {
    Give(OutOfMemory{Ref(name), 1, rank, micro, step, "asked for 2 GiB"});
  }
};

TEST_F(JobMemory, OneRankReports_EveryMemberGetsTheSmallerPlan) {
  Start();
  Report("b", 3, 8);
  for (const std::string name : {"a", "b"}) {
    const auto changed = Told<PlanChanged>(name);
    ASSERT_TRUE(changed.has_value()) << name;
    EXPECT_EQ(changed->revision, 1);
    EXPECT_EQ(changed->round, 1);
    EXPECT_EQ(changed->step, 7);
    EXPECT_EQ(changed->rank, 3);
    EXPECT_EQ(changed->plan->micro_batch_size, 4);
    EXPECT_EQ(changed->plan->grad_accum_steps, 2);
    EXPECT_EQ(changed->plan->global_batch_size, 32);
    EXPECT_EQ(*plan::Solve(changed->plan_request, 4), *changed->plan);
    EXPECT_NE(changed->text.find("rank 3 on host host-b"), std::string::npos) << changed->text;
    EXPECT_NE(changed->text.find("asked for 2 GiB"), std::string::npos) << changed->text;
  }
  EXPECT_TRUE(Said(Reason::kOutOfMemory));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobMemory, PeersReportTheSameMicroBatch_GetTheSameAnswer) {
  Start();
  Report("b", 3, 8);
  Report("a", 0, 8);
  EXPECT_EQ(TimesTold<PlanChanged>("a"), 2);
  EXPECT_EQ(TimesTold<PlanChanged>("b"), 1) << "it knows already";
  EXPECT_EQ(Told<PlanChanged>("a")->revision, 1);
  EXPECT_EQ(Told<PlanChanged>("a")->plan->micro_batch_size, 4);
  Report("a", 1, 4);
  EXPECT_EQ(Told<PlanChanged>("b")->revision, 2);
  EXPECT_EQ(Told<PlanChanged>("b")->plan->micro_batch_size, 2);
}

TEST_F(JobMemory, AtTheFloor_OnlyTheOneThatAskedIsRefused) {
  Start(8);
  Report("b", 2, 8);
  ASSERT_TRUE(Told<PlanChanged>("b").has_value());
  EXPECT_FALSE(Told<PlanChanged>("b")->plan.has_value());
  EXPECT_EQ(Told<PlanChanged>("b")->rank, 2);
  EXPECT_NE(Told<PlanChanged>("b")->error.find("--min-micro-batch-size=8"), std::string::npos);
  EXPECT_FALSE(Told<PlanChanged>("a").has_value());
}

TEST_F(JobMemory, WithoutAPlan_IsRefused) {
  StartJob(1);
  Report("a", 0, 8);
  EXPECT_FALSE(Told<PlanChanged>("a")->error.empty());
}

TEST_F(JobMemory, ProgramsPlan_IsTheOneThatIsLowered) {
  StartJob(2);
  plan::Request request;
  request.global_batch_size = 64;
  Give(PlanProposed{Ref("a"), 1, request});
  Report("a", 0, 16);
  EXPECT_EQ(Told<PlanChanged>("b")->plan->micro_batch_size, 8);
  Give(PlanProposed{Ref("b"), 1, request});
  EXPECT_EQ(Told<PlanReply>("b")->plan, Told<PlanChanged>("b")->plan) << "asked late";
}

TEST_F(JobMemory, MicroBatchAboveThePlan_GetsThePlanInForce) {
  Start();
  Report("a", 0, 100);
  EXPECT_EQ(Told<PlanChanged>("a")->revision, 0);
  EXPECT_EQ(Told<PlanChanged>("a")->plan->micro_batch_size, 8);
  EXPECT_FALSE(Told<PlanChanged>("b").has_value());
}

TEST_F(JobMemory, NonsenseAndOldRounds_ChangeNothing) {
  Start();
  Report("a", 2, 8);  // a rank of host b
  EXPECT_FALSE(Told<PlanChanged>("a")->error.empty());
  Report("a", 0, 0);
  Report("a", 0, 8, -1);
  EXPECT_FALSE(Told<PlanChanged>("b").has_value());
  Clear();
  Give(OutOfMemory{Ref("a"), 7, 0, 8, 1, ""});
  EXPECT_TRUE(Said(Reason::kStaleRound));
  EXPECT_FALSE(Told<PlanChanged>("a").has_value());
}

TEST_F(JobMemory, BackOnANewStream_HearsTheRevisionAgain) {
  Start();
  Report("a", 0, 8);
  Disconnect("b");
  Clear();
  AgentConnected hello = Hello("b", 2);
  hello.plan.micro_batch_size = 8;
  hello.plan.min_micro_batch_size = 1;
  Connect(hello);
  EXPECT_EQ(Told<RoundStart>("b")->plan->micro_batch_size, 8) << "what the round started with";
  ASSERT_TRUE(Told<PlanChanged>("b").has_value());
  EXPECT_EQ(Told<PlanChanged>("b")->revision, 1);
}

TEST_F(JobMemory, CoordinatorRestarted_LearnsTheCapFromItsAgents) {
  AgentConnected hello = Hello("a", 1);
  hello.plan.micro_batch_size = 8;
  hello.last_round = 3;
  hello.learned_max_micro_batch_size = 2;
  Connect(hello);
  Stopped("a", 3);
  PassAlive(10 * kSecond, {"a"});
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 2);
  EXPECT_EQ(Told<RoundStart>("a")->plan->global_batch_size, 16);
}

}  // namespace
}  // namespace ddl::core
