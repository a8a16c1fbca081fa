// Out of device memory in a round: every member goes on with a smaller micro-batch.
#include "agent/base/device_memory.h"
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

class JobMemory : public Harness {
 protected:
  // Two nodes of two workers each, whose launchers ask for micro-batch 8.
  void Start(std::int64_t min_micro = 1, std::int32_t max_restarts = 0) {
    for (const std::string name : {"a", "b"}) {
      AgentConnected hello = Hello(name, 2);
      hello.max_restarts = max_restarts;
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
  hello.last_plan.request.learned_max_micro_batch_size = 2;
  Connect(hello);
  Stopped("a", 3);
  PassAlive(10 * kSecond, {"a"});
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 2);
  EXPECT_EQ(Told<RoundStart>("a")->plan->global_batch_size, 16);
}

TEST_F(JobMemory, CoordinatorRestarted_HoldsTheGlobalBatchOfTheRoundBefore) {
  AgentConnected hello = Hello("a", 2);
  hello.min_nodes = 1;
  hello.max_nodes = 2;
  hello.plan.micro_batch_size = 8;
  hello.last_round = 3;
  hello.last_plan = {hello.plan, 4};
  Connect(hello);
  Stopped("a", 3);
  PassAlive(10 * kSecond, {"a"});
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->plan->global_batch_size, 32);
  EXPECT_EQ(Told<RoundStart>("a")->plan->grad_accum_steps, 2);
}

TEST_F(JobMemory, CoordinatorRestarted_APlanThatCannotBeIsRefused) {
  AgentConnected hello = Hello("a", 1);
  hello.last_round = 3;
  hello.last_plan.world_size = 4;
  Connect(hello);
  ASSERT_TRUE(Told<Rejected>("a").has_value());
  EXPECT_EQ(Told<Rejected>("a")->reason, Reason::kInvalid);
}

// ---- programs that do not report: a worker ends for lack of memory ------------------

class JobMemoryRestart : public JobMemory {
 protected:
  void FailOutOfMemory(const std::string& name, std::int64_t round, std::int32_t exit_code = 1,
                       Duration age = {}, std::int64_t micro = 0) {
    WorkerFailure failure;
    failure.micro_batch_size = micro;
    failure.hint = DeviceMemoryHints();
    failure.rank = name == "a" ? 0 : 2;
    failure.exit_code = exit_code;
    failure.out_of_memory = true;
    Give(WorkerFailed{Ref(name), round, failure, age});
  }
  void StopAll(std::int64_t round) {
    Stopped("a", round);
    Stopped("b", round);
  }
};

TEST_F(JobMemoryRestart, AboveTheFloor_NextRoundHasTheSmallerMicroBatchAndCostsNoRestart) {
  Start();  // no restarts are allowed
  FailOutOfMemory("b", 1);
  ASSERT_TRUE(Told<RoundStop>("a").has_value());
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kOutOfMemory);
  EXPECT_TRUE(Told<RoundStop>("a")->will_restart);
  EXPECT_NE(Told<RoundStop>("a")->text.find("micro-batch 8 -> 4"), std::string::npos)
      << Told<RoundStop>("a")->text;
  StopAll(1);
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->round, 2);
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 0);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 4);
  EXPECT_EQ(Told<RoundStart>("a")->plan->global_batch_size, 32);
  EXPECT_EQ(Told<RoundStart>("b")->plan, Told<RoundStart>("a")->plan);
}

TEST_F(JobMemoryRestart, ManyRanksInARound_AreOneLesson) {
  Start();
  FailOutOfMemory("b", 1, 1);
  FailOutOfMemory("a", 1, 77, kSecond);  // it happened first: the root cause is another
  EXPECT_EQ(StateOfJob(), Job::State::kStopping);
  StopAll(1);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 4);
}

TEST_F(JobMemoryRestart, PeersBrokenCollectiveIsHeardOfFirst_TheShortageIsTheCause) {
  Start();
  WorkerFailure broken;
  broken.rank = 0;
  broken.exit_code = 1;
  broken.blames_peer = true;
  Give(WorkerFailed{Ref("a"), 1, broken, {}});
  EXPECT_FALSE(Told<RoundStop>("b")->will_restart) << "no budget";
  FailOutOfMemory("b", 1);
  StopAll(1);
  ASSERT_TRUE(Told<RoundStart>("b").has_value());
  EXPECT_EQ(Told<RoundStart>("b")->plan->micro_batch_size, 4);
  EXPECT_EQ(Told<RoundStart>("b")->restart_count, 0);
}

TEST_F(JobMemoryRestart, EarlierCrashOfAnotherRank_IsTheCauseAndCosts) {
  Start();
  FailOutOfMemory("b", 1);
  WorkerFailure crash;
  crash.rank = 0;
  crash.exit_code = 3;
  Give(WorkerFailed{Ref("a"), 1, crash, kSecond});
  StopAll(1);
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 3);
}

TEST_F(JobMemoryRestart, DownToTheFloor_IsThenAnOrdinaryFailureWithWords) {
  Start(2);
  std::int64_t round = 1;
  for (const std::int64_t micro : {4, 2}) {
    FailOutOfMemory("a", round);
    StopAll(round);
    ++round;
    EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, micro);
  }
  FailOutOfMemory("a", round, 77);
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kWorkerFailed);
  StopAll(round);
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 77);
  EXPECT_EQ(Told<JobDone>("a")->restart_count, 0);
  EXPECT_NE(Told<JobDone>("a")->text.find("--min-micro-batch-size=2"), std::string::npos)
      << Told<JobDone>("a")->text;
  EXPECT_EQ(Told<JobDone>("a")->root_cause->hint, DeviceMemoryHints(false))
      << "no smaller micro-batch is left to try";
}

TEST_F(JobMemoryRestart, RightAfterAPeersRevision_IsNoSecondLesson) {
  Start();
  Report("a", 0, 8);
  ASSERT_EQ(Told<PlanChanged>("b")->plan->micro_batch_size, 4);
  FailOutOfMemory("b", 1);
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kOutOfMemory);
  EXPECT_NE(Told<RoundStop>("a")->text.find("micro-batch 8 -> 4"), std::string::npos)
      << Told<RoundStop>("a")->text;
  StopAll(1);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 4) << "which was never tried";
  // Now it is: the revision before it counts no more.
  FailOutOfMemory("b", 2);
  StopAll(2);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 2);
}

TEST_F(JobMemoryRestart, SaysWhatFailedAfterAPeersRevision_IsNoSecondLesson) {
  Start();
  Report("a", 0, 8);
  FailOutOfMemory("b", 1, 1, {}, 8);
  StopAll(1);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 4);
}

TEST_F(JobMemoryRestart, TheRevisedMicroBatchFailsToo_IsAnotherLesson) {
  Start();
  Report("a", 0, 8);
  FailOutOfMemory("b", 1, 1, {}, 4);
  StopAll(1);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 2);
}

TEST_F(JobMemoryRestart, FailedMicroBatchAboveThePlan_StillLowersIt) {
  Start();  // else a program that heeds no plan would restart for ever
  FailOutOfMemory("b", 1, 1, {}, 1000);
  StopAll(1);
  EXPECT_EQ(Told<RoundStart>("a")->plan->micro_batch_size, 4);
}

TEST_F(JobMemoryRestart, PeerThatHangsAfterARevision_IsAnOrdinaryFailure) {
  Start();
  Report("a", 0, 8);
  WorkerFailure late;
  late.rank = 0;
  late.exit_code = 1;
  late.blames_peer = true;
  Give(WorkerFailed{Ref("a"), 1, late, {}});
  EXPECT_EQ(Told<RoundStop>("b")->reason, Reason::kWorkerFailed);
  EXPECT_FALSE(Told<RoundStop>("b")->will_restart) << "it is charged, and no restart is left";
}

TEST_F(JobMemoryRestart, AtTheFloorWithRestartsLeft_TheJobEnds) {
  Start(8, 2);
  FailOutOfMemory("a", 1, 77);
  EXPECT_FALSE(Told<RoundStop>("b")->will_restart) << "the same would not fit again";
  EXPECT_EQ(Told<RoundStop>("b")->text.find("follows"), std::string::npos)
      << Told<RoundStop>("b")->text;
  StopAll(1);
  ASSERT_TRUE(Told<JobDone>("b").has_value());
  EXPECT_EQ(Told<JobDone>("b")->exit_code, 77);
  EXPECT_EQ(Told<JobDone>("b")->restart_count, 0);
  ASSERT_TRUE(Told<JobDone>("b")->root_cause.has_value());
  EXPECT_NE(Told<JobDone>("b")->text.find("--min-micro-batch-size=8"), std::string::npos)
      << Told<JobDone>("b")->text;
}

TEST_F(JobMemoryRestart, WithoutAPlan_IsAnOrdinaryFailureThatSaysWhatWouldHelp) {
  StartJob(2, 1);
  FailOutOfMemory("b", 1);
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kWorkerFailed);
  EXPECT_TRUE(Told<RoundStop>("a")->will_restart);
  EXPECT_NE(Told<RoundStop>("a")->text.find("--global-batch-size"), std::string::npos);
  StopAll(1);
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 1);
}

TEST_F(JobMemoryRestart, StoppedByTheUserMeanwhile_StaysStopped) {
  Start();
  WorkerFailure broken;
  broken.exit_code = 1;
  broken.blames_peer = true;
  Give(WorkerFailed{Ref("a"), 1, broken, {}});
  Give(StopRequested{Ref("a"), 15, false});
  FailOutOfMemory("b", 1);
  StopAll(1);
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kStoppedByUser);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 128 + 15);
}

}  // namespace
}  // namespace ddl::core
