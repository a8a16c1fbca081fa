// Late nodes: they come while a round runs that has room for them.
#include "gmock/gmock.h"
#include "tests/unit/core/elastic_harness.h"

namespace ddl::core {
namespace {

using testing::HasSubstr;

using JobLateNode = ElasticHarness;

TEST_F(JobLateNode, LateNodeWithRoom_OneReFormThatCostsNoRestart) {
  StartTwo(3);
  Connect(Elastic("c", 1, 3));
  ASSERT_TRUE(Told<RoundStop>("a").has_value());
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeJoined);
  EXPECT_TRUE(Told<RoundStop>("b")->will_restart);
  EXPECT_FALSE(Told<RoundStop>("c").has_value());
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_EQ(StateOfJob(), Job::State::kRunning) << "nobody is waited for";
  EXPECT_EQ(Told<RoundStart>("c")->round, 2);
  EXPECT_EQ(Told<RoundStart>("c")->num_nodes, 3);
  EXPECT_EQ(Told<RoundStart>("c")->restart_count, 0);
  EXPECT_EQ(Told<RoundStart>("a")->node_rank, 0);
  EXPECT_EQ(Told<RoundStart>("c")->node_rank, 2);
}

TEST_F(JobLateNode, LateNodeWhileForming_IsTakenIn) {
  hold_store_ = true;
  Connect(Elastic("a", 1, 3));
  PassAlive(5 * kSecond, {"a"});
  ASSERT_EQ(StateOfJob(), Job::State::kForming);
  Connect(Elastic("b", 1, 3));
  ASSERT_EQ(StateOfJob(), Job::State::kForming);
  Give(StoreDone{kJob, persists_.front().sequence});
  EXPECT_EQ(StateOfJob(), Job::State::kForming) << "that was the round that was given up";
  Give(StoreDone{kJob, persists_.back().sequence});
  EXPECT_EQ(Told<RoundStart>("b")->num_nodes, 2);
  EXPECT_EQ(Told<RoundStart>("a")->round, 2);
}

TEST_F(JobLateNode, LateNodeOnceSomeHaveFinished_IsParkedAndLearnsTheEnd) {
  StartTwo(3);
  Succeed("a", 1);
  Connect(Elastic("c", 1, 3));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_EQ(Told<Spare>("c")->place, 1);
  Succeed("b", 1);
  EXPECT_EQ(Told<JobDone>("c")->exit_code, 0);
}

TEST_F(JobLateNode, LateNodeForWhoseWorldThereIsNoPlan_IsParked) {
  AgentConnected a = Elastic("a", 1, 2);
  a.plan.global_batch_size = 2;
  a.plan.batch_policy = plan::BatchPolicy::kFail;
  Connect(a);
  PassAlive(5 * kSecond, {"a"});
  ASSERT_EQ(StateOfJob(), Job::State::kRunning);
  AgentConnected b = Elastic("b", 1, 2);
  b.plan.global_batch_size = 2;
  b.plan.batch_policy = plan::BatchPolicy::kFail;
  Connect(b);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_TRUE(Told<Spare>("b").has_value());
}

TEST_F(JobLateNode, LateNodesOneAfterAnother_CostOneRound) {
  StartTwo(5);
  Connect(Elastic("c", 1, 5));
  EXPECT_THAT(Told<Spare>("c")->text, HasSubstr("takes part in the next, in 5 s"));
  PassAlive(3 * kSecond, {"a", "b", "c"});
  Connect(Elastic("d", 1, 5));
  EXPECT_FALSE(Told<RoundStop>("a").has_value()) << "the workers go on meanwhile";
  PassAlive(2 * kSecond, {"a", "b", "c", "d"});
  ASSERT_TRUE(Told<RoundStop>("a").has_value());
  EXPECT_EQ(Told<RoundStop>("a")->text,
            "hosts host-c, host-d joined: round 1 ends to take them in");
  Stopped("a", 1);
  Stopped("b", 1);
  EXPECT_EQ(Told<RoundStart>("d")->num_nodes, 4);
  EXPECT_EQ(Told<RoundStart>("d")->round, 2);
}

TEST_F(JobLateNode, LateNodesUpToMax_AreTakenInAtOnce) {
  StartTwo(4);
  Connect(Elastic("c", 1, 4));
  EXPECT_FALSE(Told<RoundStop>("a").has_value());
  Connect(Elastic("d", 1, 4));
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeJoined);
}

TEST_F(JobLateNode, LateNodeGoneBeforeTheCall_EndsNoRound) {
  StartTwo(4);
  Connect(Elastic("c", 1, 4));
  Leave("c");
  PassAlive(10 * kSecond, {"a", "b"});
  EXPECT_FALSE(Told<RoundStop>("a").has_value());
  Connect(Elastic("d", 1, 4));
  PassAlive(4 * kSecond, {"a", "b", "d"});
  EXPECT_FALSE(Told<RoundStop>("a").has_value()) << "the call is for the next one anew";
  PassAlive(kSecond, {"a", "b", "d"});
  EXPECT_TRUE(Told<RoundStop>("a").has_value());
}

TEST_F(JobLateNode, SomeFinishBeforeTheCall_TheLateNodeIsASpareAndSaysWhy) {
  StartTwo(4);
  Connect(Elastic("c", 1, 4));
  Succeed("a", 1);
  PassAlive(5 * kSecond, {"a", "b", "c"});
  EXPECT_FALSE(Told<RoundStop>("b").has_value());
  EXPECT_THAT(Told<Spare>("c")->text, HasSubstr("some have finished already"));
}

TEST_F(JobLateNode, LateNodeAndThenAFailure_IsTakenInByTheRestart) {
  StartTwo(4, /*max_restarts=*/1);
  Connect(Elastic("c", 1, 4, 1));
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_TRUE(Told<RoundStart>("c").has_value());
  EXPECT_EQ(Told<RoundStart>("c")->num_nodes, 3);
  PassAlive(10 * kSecond, {"a", "b", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_EQ(Told<RoundStart>("c")->round, 2);
}

}  // namespace
}  // namespace ddl::core
