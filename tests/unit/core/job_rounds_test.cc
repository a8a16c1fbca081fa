// Failures, restarts, the user's stop, success, and the end.
#include "absl/strings/str_cat.h"
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

using JobRounds = Harness;

TEST_F(JobRounds, WorkerFails_EveryMemberIsToldAtOnceWithTheRootCause) {
  StartJob(2, 1);
  Fail("b", 1, 3);
  for (const char* name : {"a", "b"}) {
    const auto stop = Told<RoundStop>(name);
    ASSERT_TRUE(stop.has_value()) << name;
    EXPECT_EQ(stop->round, 1);
    EXPECT_EQ(stop->reason, Reason::kWorkerFailed);
    EXPECT_TRUE(stop->will_restart);
    ASSERT_TRUE(stop->root_cause.has_value());
    EXPECT_EQ(stop->root_cause->exit_code, 3);
    EXPECT_EQ(stop->root_cause->host, "host-b");
  }
}

TEST_F(JobRounds, AllStopped_RestartsAtOnceWithTheSameRanks) {
  StartJob(2, 1);
  Fail("b", 1, 3);
  Stopped("a", 1);
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
  Stopped("b", 1);
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->round, 2);
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 1);
  EXPECT_EQ(Told<RoundStart>("b")->restart_count, 1);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
  EXPECT_TRUE(Said(Reason::kRestarting));
}

TEST_F(JobRounds, FreshMasterPortBeforeStopped_IsUsedInTheNextRound) {
  StartJob(1, 1);
  Fail("a", 1, 3);
  Give(AgentHeard{Ref("a"), 4242});
  Stopped("a", 1);
  EXPECT_EQ(Told<RoundStart>("a")->master_port, 4242U);
}

TEST_F(JobRounds, AlwaysFails_ExactlyMaxRestartsPlusOneAttempts) {
  StartJob(2, 2);
  for (std::int64_t round = 1; round <= 3; ++round) {
    ASSERT_EQ(StateOfJob(), Job::State::kRunning);
    EXPECT_EQ(rendezvous_.FindJob(kJob)->round()->restart_count, round - 1);
    Fail("a", round, 7);
    Stopped("a", round);
    Stopped("b", round);
  }
  const auto done = Told<JobDone>("b");
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->reason, Reason::kRestartsExhausted);
  EXPECT_EQ(done->exit_code, 7);
  EXPECT_EQ(done->restart_count, 2);
  EXPECT_EQ(done->root_cause->host, "host-a");
}

TEST_F(JobRounds, NoBudget_EndsWithTheWorkersCode) {
  StartJob(1);
  Fail("a", 1, 0, /*term_signal=*/11);
  EXPECT_FALSE(Told<RoundStop>("a")->will_restart);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  Stopped("a", 1);
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kWorkerFailed);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 139);
}

TEST_F(JobRounds, LaterFailures_AreSecondary) {
  StartJob(2);
  Fail("b", 1, 3);
  Fail("a", 1, 9);
  EXPECT_EQ(TimesTold<RoundStop>("a"), 1);
  Stopped("a", 1);
  Stopped("b", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 3);
  EXPECT_NE(Told<JobDone>("a")->text.find("1 more failed"), std::string::npos);
}

TEST_F(JobRounds, FirstToBeHeardOfBlamesAPeer_TheOneThatDoesNotIsTheCause) {
  StartJob(2);
  WorkerFailure broken;
  broken.rank = 0;
  broken.exit_code = 1;
  broken.blames_peer = true;
  Give(WorkerFailed{Ref("a"), 1, broken});
  EXPECT_EQ(Told<RoundStop>("b")->root_cause->rank, 0);
  broken.rank = 1;
  Give(WorkerFailed{Ref("a"), 1, broken});
  WorkerFailure cause;
  cause.rank = 2;
  cause.exit_code = 7;
  Give(WorkerFailed{Ref("b"), 1, cause});
  cause.rank = 3;  // too late: there is one that blames nobody
  cause.exit_code = 9;
  Give(WorkerFailed{Ref("b"), 1, cause});
  Stopped("a", 1);
  Stopped("b", 1);
  EXPECT_EQ(Told<JobDone>("a")->root_cause->rank, 2);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 7);
  EXPECT_NE(Told<JobDone>("b")->text.find("rank 2"), std::string::npos);
}

TEST_F(JobRounds, StoppedByTheUserWhileAFailureIsReplaced_TheStopStaysTheResult) {
  StartJob(1, /*max_restarts=*/1);
  WorkerFailure broken;
  broken.rank = 0;
  broken.exit_code = 1;
  broken.blames_peer = true;
  Give(WorkerFailed{Ref("a"), 1, broken});
  Give(StopRequested{Ref("a"), 15});
  broken.rank = 1;
  broken.blames_peer = false;
  Give(WorkerFailed{Ref("a"), 1, broken});
  Stopped("a", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 143);
}

TEST_F(JobRounds, FailureAfterANodeWasLost_CostsNoRestart) {
  StartJob(2, 1);
  Leave("b");
  Fail("a", 1, 1);
  Stopped("a", 1);
  Connect(Hello("c", 2, 1));
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 0);
}

TEST_F(JobRounds, AllSucceeded_EndsWithZeroAndIsForgottenOnceAllLeft) {
  StartJob(2);
  Succeed("a", 1);
  Succeed("a", 1);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  Succeed("b", 1);
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kAllSucceeded);
  EXPECT_EQ(Told<JobDone>("b")->exit_code, 0);
  EXPECT_TRUE(persists_.back().ended);
  Leave("a");
  Disconnect("b");
  EXPECT_EQ(rendezvous_.num_jobs(), 1U);
  Pass(kSecond);
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
}

TEST_F(JobRounds, EndedAndItsIdIsUsedAgainAtOnce_BothLivesGoTheirWay) {
  StartJob(2);
  Succeed("a", 1);
  Disconnect("b");
  Succeed("b", 1);  // said before its stream broke
  Connect(Hello("c", 2));
  Connect(Hello("d", 2));
  EXPECT_EQ(Told<RoundStart>("c")->num_nodes, 2);
  EXPECT_EQ(rendezvous_.num_jobs(), 2U);
  Connect(Hello("b", 2));
  EXPECT_EQ(Told<JobDone>("b")->exit_code, 0);
  EXPECT_FALSE(Told<JobDone>("c").has_value());
  Leave("a");
  Leave("b");
  EXPECT_EQ(rendezvous_.num_jobs(), 1U);
  Succeed("c", 1);
  Succeed("d", 1);
  EXPECT_EQ(Told<JobDone>("d")->exit_code, 0);
}

TEST_F(JobRounds, EndedTwiceUnderOneId_BothRecordsAreForgotten) {
  StartJob(1);
  Succeed("a", 1);
  Connect(Hello("b", 1));
  Succeed("b", 1);
  EXPECT_EQ(rendezvous_.num_jobs(), 2U);
  PassAlive(options_.forget_after + kSecond, {"a", "b"});
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
  Connect(Hello("b", 1));
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kStaleIncarnation);
}

TEST_F(JobRounds, EndedAndNobodyLeaves_IsForgottenInTheEnd) {
  StartJob(1);
  Succeed("a", 1);
  PassAlive(options_.forget_after - kSecond, {"a"});
  EXPECT_EQ(rendezvous_.num_jobs(), 1U);
  PassAlive(2 * kSecond, {"a"});
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
  Give(Hello("a", 1));
  EXPECT_EQ(Told<Rejected>("a")->reason, Reason::kStaleIncarnation);
}

TEST_F(JobRounds, UserStopsWhileRunning_EveryNodeStopsThenEndsWith128PlusSignal) {
  StartJob(2, 5);
  Give(StopRequested{Ref("b"), 15});
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kStoppedByUser);
  EXPECT_FALSE(Told<RoundStop>("a")->will_restart);
  Stopped("a", 1);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  Stopped("b", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 143);
  EXPECT_EQ(Told<JobDone>("b")->reason, Reason::kStoppedByUser);
}

TEST_F(JobRounds, UserStopsWhileGathering_EndsAtOnce) {
  Connect(Hello("a", 3));
  Connect(Hello("b", 3));
  Give(StopRequested{Ref("a"), 2});
  EXPECT_EQ(Told<JobDone>("b")->exit_code, 130);
}

TEST_F(JobRounds, UserStopsDuringARestart_NoOtherRoundFollows) {
  StartJob(1, 5);
  Fail("a", 1, 3);
  Give(StopRequested{Ref("a"), 2});
  Stopped("a", 1);
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 130);
}

TEST_F(JobRounds, UserStopsAJobThatIsFailing_TheFailureStaysTheResult) {
  StartJob(1);
  Fail("a", 1, 3);
  Give(StopRequested{Ref("a"), 2});
  Stopped("a", 1);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 3);
}

TEST_F(JobRounds, WordsOfAnotherRound_AreIgnoredWithAReason) {
  StartJob(2, 1);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_EQ(StateOfJob(), Job::State::kRunning);
  Clear();
  Fail("a", 1, 3);
  Succeed("a", 1);
  Succeed("b", 1);
  Stopped("a", 1);
  Fail("a", 3, 3);
  EXPECT_EQ(explains_.size(), 5U);
  for (const Explain& explain : explains_) {
    EXPECT_EQ(explain.reason, Reason::kStaleRound) << explain.text;
  }
  EXPECT_TRUE(replies_.empty());
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobRounds, WordsOfOneWhoIsNotAMember_AreIgnored) {
  StartJob(2);
  Disconnect("b");
  Connect(Hello("c", 2));
  Clear();
  Fail("c", 1, 3);
  EXPECT_TRUE(Said(Reason::kStaleRound));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobRounds, SucceededNodes_AreStoppedAndRestartedWithTheRest) {
  StartJob(2, 1);
  Succeed("a", 1);
  Fail("b", 1, 3);
  EXPECT_TRUE(Told<RoundStop>("a").has_value());
  Stopped("a", 1);
  Stopped("b", 1);
  ASSERT_EQ(StateOfJob(), Job::State::kRunning);
  Succeed("b", 2);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  Succeed("a", 2);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 0);
}

TEST_F(JobRounds, StopTimerOfAnEarlierRound_MeansNothing) {
  StartJob(2, 1);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  Fail("a", 2, 3);
  Give(TimerFired{TimerId{TimerKind::kStop, kJob, ""}});
  EXPECT_EQ(StateOfJob(), Job::State::kStopping);
}

TEST_F(JobRounds, ThousandNodes_FormStopAndRestart) {
  constexpr std::int32_t kNodes = 1000;
  for (std::int32_t i = 0; i < kNodes; ++i) {
    Connect(Hello(absl::StrCat("n", i), kNodes, 1));
  }
  EXPECT_EQ(Told<RoundStart>("n999")->first_rank, 1998);
  Fail("n500", 1, 3);
  for (std::int32_t i = 0; i < kNodes; ++i) {
    Stopped(absl::StrCat("n", i), 1);
  }
  EXPECT_EQ(Told<RoundStart>("n0")->round, 2);
  EXPECT_EQ(Told<RoundStart>("n999")->node_rank, 999);
}

}  // namespace
}  // namespace ddl::core
