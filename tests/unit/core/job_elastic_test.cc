// Elastic jobs: when a round forms with fewer than all, who waits as a spare, and
// how nodes come, leave and are replaced while the job lives.
#include "tests/unit/core/elastic_harness.h"

namespace ddl::core {
namespace {

using JobElastic = ElasticHarness;

TEST_F(JobElastic, MinReached_FormsWhenTheLastCallIsOver) {
  Connect(Elastic("a", 2, 4));
  PassAlive(20 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Connect(Elastic("b", 2, 4));
  EXPECT_NE(Told<Waiting>("a")->text.find("starting in 5 s"), std::string::npos);
  PassAlive(4 * kSecond, {"a", "b"});
  Connect(Elastic("c", 2, 4));
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(kSecond, {"a", "b", "c"});
  ASSERT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_EQ(Told<RoundStart>("c")->num_nodes, 3);
}

TEST_F(JobElastic, MaxReached_FormsAtOnce) {
  Connect(Elastic("a", 1, 2));
  Connect(Elastic("b", 1, 2));
  EXPECT_EQ(Told<RoundStart>("b")->num_nodes, 2);
}

TEST_F(JobElastic, MinLostDuringTheLastCall_TheCallBeginsAnew) {
  Connect(Elastic("a", 2, 3));
  Connect(Elastic("b", 2, 3));
  PassAlive(4 * kSecond, {"a", "b"});
  Leave("b");
  PassAlive(4 * kSecond, {"a"});
  Connect(Elastic("c", 2, 3));
  PassAlive(4 * kSecond, {"a", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(kSecond, {"a", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobElastic, TooFewUntilTheJoinTimeout_SaysHowManyAreMissing) {
  Connect(Elastic("a", 2, 4));
  PassAlive(60 * kSecond, {"a"});
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kJoinTimeout);
  EXPECT_NE(Told<JobDone>("a")->text.find("1 of 2 to 4 nodes"), std::string::npos);
  EXPECT_NE(Told<JobDone>("a")->text.find("at least 1 more"), std::string::npos);
}

TEST_F(JobElastic, FormedByTheJoinTimeoutAndGivenUp_DoesNotWaitForEver) {
  hold_store_ = true;
  AgentConnected a = Elastic("a", 2, 3);
  AgentConnected b = Elastic("b", 2, 3);
  a.last_call_timeout = b.last_call_timeout = 90 * kSecond;
  Connect(a);
  Connect(b);
  PassAlive(60 * kSecond, {"a", "b"});
  ASSERT_EQ(StateOfJob(), Job::State::kForming);
  Leave("b");
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(15 * kSecond, {"a"});
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kJoinTimeout);
}

TEST_F(JobElastic, LastCallLongerThanTheJoinTimeout_EndsWithIt) {
  AgentConnected a = Elastic("a", 1, 2);
  a.last_call_timeout = 90 * kSecond;
  Connect(a);
  PassAlive(60 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobElastic, NodeLost_TheLastCallIsForItsReplacement) {
  StartTwo(2);
  Disconnect("b");
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Connect(Elastic("c", 1, 2));
  EXPECT_EQ(Told<RoundStart>("c")->node_rank, 1);
  EXPECT_EQ(Told<RoundStart>("c")->num_nodes, 2);
}

TEST_F(JobElastic, NodeLostAndNobodyCame_TheOthersGoOn) {
  StartTwo(2);
  Disconnect("a");
  PassAlive(kSecond, {"b"});
  Stopped("b", 1);
  PassAlive(5 * kSecond, {"b"});
  ASSERT_TRUE(Told<RoundStart>("b").has_value());
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 0);
  EXPECT_EQ(Told<RoundStart>("b")->world_size, 2);
  EXPECT_EQ(Told<RoundStart>("b")->restart_count, 0);
}

TEST_F(JobElastic, WorkerFailedBelowMax_RestartWaitsForNobody) {
  StartTwo(4, /*max_restarts=*/1);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 1);
  EXPECT_EQ(Told<RoundStart>("a")->num_nodes, 2);
}

TEST_F(JobElastic, WorkersFailBecauseAPeerNodeDied_CostsNothing) {
  StartTwo(2);
  Disconnect("b");
  Fail("a", 1, 1);  // on the connection that broke
  EXPECT_FALSE(Told<RoundStop>("a")->will_restart);
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  PassAlive(5 * kSecond, {"a"});
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 0);
}

TEST_F(JobElastic, FailureThatBlamesAPeerIsHeardOfBeforeItsLoss_CostsNothing) {
  StartTwo(2);
  WorkerFailure broken;
  broken.exit_code = 1;
  broken.blames_peer = true;
  Give(WorkerFailed{Ref("a"), 1, broken});
  Disconnect("b");
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
}

TEST_F(JobElastic, WorkerFailedAndItsOwnNodeIsLostThen_StaysAFailure) {
  StartTwo(2);
  Fail("b", 1, 7);
  Disconnect("b");
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 7);
}

TEST_F(JobElastic, StoppedByTheUserAndANodeIsLostThen_StaysStopped) {
  StartTwo(2);
  Give(StopRequested{Ref("a"), 2});
  Disconnect("b");
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 130);
}

TEST_F(JobElastic, StoppedByTheUserAndTheFailureIsForgivenThen_StaysStopped) {
  StartTwo(2);
  Disconnect("b");
  Fail("a", 1, 1);
  Give(StopRequested{Ref("a"), 2});
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 130);
}

// ---- worlds without a plan --------------------------------------------------

class JobWithABatchOfTwo : public JobElastic {
 protected:
  // Nodes of one worker each: two samples cannot be shared by three.
  static AgentConnected Small(const std::string& name, std::int32_t min, std::int32_t max) {
    AgentConnected hello = Elastic(name, min, max, /*max_restarts=*/3);
    hello.nproc = 1;
    hello.plan.global_batch_size = 2;
    hello.plan.batch_policy = plan::BatchPolicy::kFail;
    return hello;
  }
};

TEST_F(JobWithABatchOfTwo, ThreeCameForTheFirstRound_TwoStart) {
  Connect(Small("a", 1, 3));
  Connect(Small("b", 1, 3));
  Connect(Small("c", 1, 3));
  EXPECT_EQ(Told<RoundStart>("a")->num_nodes, 2);
  EXPECT_NE(Told<Spare>("c")->text.find("there is no plan"), std::string::npos);
}

TEST_F(JobWithABatchOfTwo, RestartWithASpareThere_TheSameTwoStart) {
  Connect(Small("a", 2, 3));
  Connect(Small("b", 2, 3));
  PassAlive(5 * kSecond, {"a", "b"});
  Connect(Small("c", 2, 3));
  EXPECT_TRUE(Told<Spare>("c").has_value());
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->round, 2);
  EXPECT_FALSE(Told<RoundStart>("c").has_value());
}

TEST_F(JobWithABatchOfTwo, NoNumberOfNodesHasAPlan_EndsAtOnce) {
  Connect(Small("a", 3, 4));
  Connect(Small("b", 3, 4));
  Connect(Small("c", 3, 4));
  PassAlive(5 * kSecond, {"a", "b", "c"});
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kPlanImpossible);
}

TEST_F(JobWithABatchOfTwo, LossLeavesAWorldWithoutAPlan_TheLostIsWaitedFor) {
  AgentConnected a = Small("a", 1, 4);
  a.nproc = 3;
  a.plan.global_batch_size = 4;
  AgentConnected b = Small("b", 1, 4);
  b.plan.global_batch_size = 4;
  Connect(a);
  Connect(b);
  PassAlive(5 * kSecond, {"a", "b"});
  ASSERT_EQ(Told<RoundStart>("a")->world_size, 4);
  Leave("b");
  Stopped("a", 1);
  PassAlive(10 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  EXPECT_NE(Told<Waiting>("a")->text.find("there is no plan"), std::string::npos);
  b.agent.incarnation = "b2";
  Connect(b);
  EXPECT_EQ(Told<RoundStart>("b2")->world_size, 4);
}

// ---- a stop of one node -----------------------------------------------------

TEST_F(JobElastic, OneNodeStopped_TheOthersGoOnAndWaitForNobody) {
  StartTwo(3);
  Give(StopRequested{Ref("b"), 15, /*node_only=*/true});
  ASSERT_TRUE(Told<RoundStop>("a").has_value());
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeLeft);
  EXPECT_TRUE(Told<RoundStop>("b")->will_restart);
  Stopped("a", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kStopping) << "its workers may still save something";
  Leave("b");
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->num_nodes, 1);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
}

TEST_F(JobElastic, OneNodeStoppedAndStillThere_IsNotTakenIntoTheNextRound) {
  StartTwo(3);
  Give(StopRequested{Ref("b"), 15, /*node_only=*/true});
  Stopped("b", 1);
  Stopped("a", 1);
  EXPECT_EQ(Told<RoundStart>("a")->num_nodes, 1);
  EXPECT_FALSE(Told<RoundStart>("b").has_value());
  Leave("b");
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobElastic, OneNodeStoppedInAFixedJob_EndsTheJob) {
  StartJob(2);
  Give(StopRequested{Ref("b"), 15, /*node_only=*/true});
  Stopped("a", 1);
  Stopped("b", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 143);
}

TEST_F(JobElastic, OneNodeStoppedWhileForming_TheRoundIsFormedWithoutIt) {
  hold_store_ = true;
  Connect(Elastic("a", 1, 2));
  Connect(Elastic("b", 1, 2));
  ASSERT_EQ(StateOfJob(), Job::State::kForming);
  Give(StopRequested{Ref("b"), 15, /*node_only=*/true});
  PassAlive(5 * kSecond, {"a", "b"});
  Give(StoreDone{kJob, persists_.back().sequence});
  EXPECT_EQ(Told<RoundStart>("a")->num_nodes, 1);
  EXPECT_FALSE(Told<RoundStart>("b").has_value());
}

// ---- spares -----------------------------------------------------------------

TEST_F(JobElastic, SpareOfAFixedJob_TakesTheLostNodesRank) {
  StartJob(2);
  Connect(Hello("c", 2));
  EXPECT_EQ(Told<Spare>("c")->place, 1);
  EXPECT_NE(Told<Spare>("c")->text.find("host-a, host-b"), std::string::npos);
  Clear();
  Disconnect("a");
  PassAlive(kSecond, {"b", "c"});
  EXPECT_FALSE(Told<RoundStop>("c").has_value());
  Stopped("b", 1);
  ASSERT_TRUE(Told<RoundStart>("c").has_value()) << "nobody else is waited for";
  EXPECT_EQ(Told<RoundStart>("c")->node_rank, 0);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
  EXPECT_EQ(Told<RoundStart>("b")->master_addr, "addr-c");
}

TEST_F(JobElastic, SpareAheadGoes_TheNextMovesUp) {
  StartJob(3);
  Connect(Hello("x", 3));
  Connect(Hello("y", 3));
  EXPECT_EQ(Told<Spare>("y")->place, 2);
  Leave("x");
  EXPECT_EQ(Told<Spare>("y")->place, 1);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobElastic, SpareIsStopped_TheJobDoesNotCare) {
  StartJob(2);
  Connect(Hello("c", 2));
  Give(StopRequested{Ref("c"), 2});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  Leave("c");
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobElastic, SpareReconnects_KeepsItsPlace) {
  StartJob(3);
  Connect(Hello("x", 3));
  Connect(Hello("y", 3));
  Disconnect("x");
  Clear();
  Connect(Hello("x", 3));
  EXPECT_EQ(Told<Spare>("x")->place, 1);
  EXPECT_FALSE(Told<Spare>("y").has_value());
}

TEST_F(JobElastic, SpareWhenTheJobEnds_LearnsTheResult) {
  StartJob(2);
  Connect(Hello("c", 2));
  Fail("a", 1, 7);
  Stopped("a", 1);
  Stopped("b", 1);
  EXPECT_EQ(Told<JobDone>("c")->exit_code, 7);
}

TEST_F(JobElastic, SpareIsLost_IsForgotten) {
  StartJob(2);
  Connect(Hello("c", 2));
  PassAlive(6 * kSecond, {"a", "b"});
  EXPECT_EQ(Told<Rejected>("c")->reason, Reason::kStaleIncarnation);
  Disconnect("b");
  PassAlive(kSecond, {"a"});
  Stopped("a", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
}

// ---- a node that comes again before its end was noticed ------------------------

TEST_F(JobElastic, AllDiedAndAreRunAgainAtOnce_TheJobBeginsAnew) {
  StartJob(2, /*max_restarts=*/2);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_EQ(Told<RoundStart>("a")->restart_count, 1);
  Disconnect("a");
  Disconnect("b");
  Connect(Hello("c", 2, 2));
  Connect(Hello("d", 2, 2));
  PassAlive(kSecond, {"c", "d"});
  ASSERT_TRUE(Told<RoundStart>("c").has_value());
  EXPECT_EQ(Told<RoundStart>("c")->restart_count, 0);
  EXPECT_EQ(Told<RoundStart>("c")->round, 3);
}

TEST_F(JobElastic, SparesTakeOverFromAllMembers_TheBudgetStaysSpent) {
  StartJob(3, /*max_restarts=*/2);
  Fail("a", 1, 3);
  for (const char* name : {"a", "b", "c"}) {
    Stopped(name, 1);
  }
  Connect(Hello("x", 3, 2));
  for (const char* name : {"a", "b", "c"}) {
    Disconnect(name);
  }
  Connect(Hello("y", 3, 2));
  Connect(Hello("z", 3, 2));
  PassAlive(kSecond, {"x", "y", "z"});
  EXPECT_EQ(Told<RoundStart>("x")->restart_count, 1);
}

TEST_F(JobElastic, MembersThatAreSilent_DoNotCountForTheLimit) {
  StartJob(2);
  PassAlive(3 * kSecond, {"a"});  // b's host is dead; nobody knows yet
  Connect(Hello("c", 2));
  Connect(Hello("d", 2));
  EXPECT_FALSE(Told<Rejected>("d").has_value());
}

TEST_F(JobElastic, PinnedNodeIsSilent_ItsReplacementIsNotRefused) {
  AgentConnected b = Hello("b", 2);
  b.node_rank = 1;
  AgentConnected c = Hello("c", 2);
  c.node_rank = 1;
  Connect(Hello("a", 2));
  Connect(b);
  PassAlive(3 * kSecond, {"a"});
  Connect(c);
  EXPECT_TRUE(Told<Spare>("c").has_value());
  Give(AgentHeard{Ref("b"), 0});  // it was only slow: it came first
  EXPECT_EQ(Told<Rejected>("c")->reason, Reason::kNodeRankTaken);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

// ---- a coordinator that serves one job ---------------------------------------

class JobAtAForeignCoordinator : public Harness {
 protected:
  JobAtAForeignCoordinator() : Harness(OnlyJob("other")) {}
  static Options OnlyJob(const std::string& job) {
    Options options;
    options.only_job = job;
    return options;
  }
};

TEST_F(JobAtAForeignCoordinator, AllNodesThere_AreToldWhereTheyAre) {
  Connect(Hello("a", 2));
  EXPECT_TRUE(Told<Waiting>("a").has_value()) << "a mistyped id waits, to be explained";
  Connect(Hello("b", 2));
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kLimit);
  EXPECT_EQ(Told<JobDone>("b")->exit_code, 2);
  EXPECT_NE(Told<JobDone>("a")->text.find("'other'"), std::string::npos);
}

}  // namespace
}  // namespace ddl::core
