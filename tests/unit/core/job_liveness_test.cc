// Silence, broken streams, goodbyes, and nodes that do not stop.
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

using JobLiveness = Harness;

TEST_F(JobLiveness, AnyWord_CountsAsHeard) {
  StartJob(2);
  for (int i = 0; i < 10; ++i) {
    Pass(4 * kSecond);
    Give(AgentHeard{Ref("a"), 0});
    Give(KeyWanted{Ref("b"), 99, "stale round, but alive"});
  }
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobLiveness, Silent_IsLostAfterTheTimeoutAndToldSo) {
  StartJob(2);
  PassAlive(4 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  PassAlive(2 * kSecond, {"a"});
  const auto stop = Told<RoundStop>("a");
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->reason, Reason::kNodeLost);
  EXPECT_TRUE(stop->will_restart);
  EXPECT_NE(stop->text.find("host-b (node rank 1)"), std::string::npos) << stop->text;
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kStaleIncarnation);
  EXPECT_FALSE(Told<RoundStop>("b").has_value());
}

TEST_F(JobLiveness, HalfTheTimeoutSilent_IsKept) {
  StartJob(1);
  for (int i = 0; i < 5; ++i) {
    Pass(options_.heartbeat_timeout / 2);
    Give(AgentHeard{Ref("a"), 0});
  }
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobLiveness, StreamBroken_IsLostAfterTheGraceOnly) {
  StartJob(2);
  Disconnect("b");
  Pass(kSecond - Duration(1));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  Pass(Duration(1));
  EXPECT_EQ(StateOfJob(), Job::State::kStopping);
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeLost);
}

TEST_F(JobLiveness, BrokeTwice_TheSecondGraceCounts) {
  StartJob(2);
  Disconnect("b");
  Pass(kSecond / 2);
  Give(Hello("b", 2));
  Disconnect("b");
  Pass(kSecond * 3 / 4);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  Pass(kSecond / 4);
  EXPECT_EQ(StateOfJob(), Job::State::kStopping);
}

TEST_F(JobLiveness, LostAndReplaced_SurvivorKeepsItsRankAndNoRestartIsCharged) {
  StartJob(2, 1);
  Disconnect("a");
  PassAlive(2 * kSecond, {"b"});
  Stopped("b", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  EXPECT_EQ(Told<Waiting>("b")->nodes_joined, 1);
  Connect(Hello("c", 2, 1));
  ASSERT_TRUE(Told<RoundStart>("c").has_value());
  EXPECT_EQ(Told<RoundStart>("b")->round, 2);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
  EXPECT_EQ(Told<RoundStart>("c")->node_rank, 0);
  EXPECT_EQ(Told<RoundStart>("b")->restart_count, 0);
  EXPECT_EQ(Told<RoundStart>("b")->master_addr, "addr-c");
}

TEST_F(JobLiveness, NobodyReplacesTheLost_JoinTimeoutNamesIt) {
  StartJob(2);
  Disconnect("b");
  PassAlive(2 * kSecond, {"a"});
  Stopped("a", 1);
  PassAlive(61 * kSecond, {"a"});
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kJoinTimeout);
  EXPECT_NE(Told<JobDone>("a")->text.find("host-b (node rank 1) was lost"), std::string::npos)
      << Told<JobDone>("a")->text;
}

TEST_F(JobLiveness, LeftWhileRunning_StopsTheRound) {
  StartJob(2);
  Leave("b");
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeLeft);
  EXPECT_TRUE(Told<RoundStop>("a")->will_restart);
}

TEST_F(JobLiveness, LeftWhileForming_TheRoundIsGivenUpAndItsNumberNotUsedAgain) {
  hold_store_ = true;
  Connect(Hello("a", 2));
  Connect(Hello("b", 2));
  const std::int64_t sequence = persists_.back().sequence;
  Leave("b");
  Give(StoreDone{kJob, sequence});
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
  hold_store_ = false;
  Connect(Hello("c", 2));
  EXPECT_EQ(Told<RoundStart>("a")->round, 2);
}

TEST_F(JobLiveness, LostAfterSuccess_DoesNoHarm) {
  StartJob(2);
  Succeed("b", 1);
  Disconnect("b");
  PassAlive(3 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  Succeed("a", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 0);
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kAllSucceeded);
}

TEST_F(JobLiveness, LostWhileStopping_IsNotWaitedFor) {
  StartJob(2, 1);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Disconnect("b");
  PassAlive(2 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
}

TEST_F(JobLiveness, DoesNotStop_IsGivenUpAfterGraceAndMargin) {
  StartJob(2, 1);
  Fail("a", 1, 3);
  Stopped("a", 1);
  PassAlive(14 * kSecond, {"a", "b"});
  EXPECT_EQ(StateOfJob(), Job::State::kStopping);
  PassAlive(2 * kSecond, {"a", "b"});
  EXPECT_TRUE(Said(Reason::kStopTimeout));
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kStopTimeout);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Clear();
  Stopped("b", 1);
  EXPECT_TRUE(Said(Reason::kStaleIncarnation));
}

TEST_F(JobLiveness, AllNodesGone_TheIdIsFreeAtOnce) {
  StartJob(2);
  Disconnect("a");
  Disconnect("b");
  Pass(2 * kSecond);
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
  EXPECT_TRUE(persists_.back().ended);
  Connect(Hello("c", 1));
  EXPECT_EQ(Told<RoundStart>("c")->world_size, 2);
}

TEST_F(JobLiveness, StoppedByItself_CountsAsALossOfTheRoundButNotOfTheNode) {
  StartJob(2);
  Stopped("b", 1);
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeLost);
  Stopped("a", 1);
  EXPECT_EQ(Told<RoundStart>("a")->round, 2);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
}

TEST_F(JobLiveness, StoppedByItselfAfterSuccess_DoesNoHarm) {
  StartJob(2);
  Succeed("b", 1);
  Stopped("b", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

}  // namespace
}  // namespace ddl::core
