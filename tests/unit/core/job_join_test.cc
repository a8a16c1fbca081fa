// Who may join, who comes back, and what those who wait are told.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using JobJoin = Harness;

TEST_F(JobJoin, LastNode_FormsTheRoundWithRanksInOrderOfArrival) {
  AgentConnected b = Hello("b", 2);
  b.nproc = 3;
  Connect(Hello("a", 2));
  EXPECT_EQ(Told<Waiting>("a")->nodes_joined, 1);
  EXPECT_EQ(Told<Waiting>("a")->nodes_needed, 2);
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
  Connect(b);
  const auto first = Told<RoundStart>("a");
  const auto second = Told<RoundStart>("b");
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->round, 1);
  EXPECT_EQ(first->node_rank, 0);
  EXPECT_EQ(first->first_rank, 0);
  EXPECT_EQ(second->node_rank, 1);
  EXPECT_EQ(second->first_rank, 2);
  EXPECT_EQ(second->nproc, 3);
  for (const auto& start : {*first, *second}) {
    EXPECT_EQ(start.world_size, 5);
    EXPECT_EQ(start.num_nodes, 2);
    EXPECT_EQ(start.master_addr, "addr-a");
    EXPECT_EQ(start.master_port, 5000U + 'a');
  }
  EXPECT_TRUE(Said(Reason::kRoundFormed));
}

TEST_F(JobJoin, WorkerPorts_BecomeTheAddressesOfAllRanks) {
  AgentConnected a = Hello("a", 2);
  a.worker_ports = {11, 12};
  AgentConnected b = Hello("b", 2);
  b.address = "fd00::2";
  b.nproc = 1;
  b.worker_ports = {13};
  Connect(a);
  Connect(b);
  for (const char* const name : {"a", "b"}) {
    const auto start = Told<RoundStart>(name);
    ASSERT_TRUE(start.has_value() && start->worker_addresses != nullptr);
    EXPECT_EQ(*start->worker_addresses,
              (std::vector<std::string>{"addr-a:11", "addr-a:12", "[fd00::2]:13"}));
    EXPECT_EQ(start->first_worker_port, 11U);
  }
}

TEST_F(JobJoin, WorkerAddressesTooLong_OnlyThatOfRankZeroIsTold) {
  AgentConnected a = Hello("a", 1);
  a.address = std::string(limits::kMaxHostBytes, 'h');
  a.nproc = limits::kMaxWorkersPerNode;
  a.worker_ports.assign(static_cast<std::size_t>(a.nproc), 11);
  Connect(a);
  const auto start = Told<RoundStart>("a");
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(start->worker_addresses, nullptr);
  EXPECT_EQ(start->first_worker_port, 11U);
  EXPECT_TRUE(Said(Reason::kLimit));
}

TEST_F(JobJoin, NoWorkerPorts_NoAddresses) {
  Connect(Hello("a", 1));
  EXPECT_EQ(Told<RoundStart>("a")->worker_addresses, nullptr);
  EXPECT_EQ(Told<RoundStart>("a")->first_worker_port, 0U);
}

TEST_F(JobJoin, StoreNotDone_HoldsTheRoundBack) {
  hold_store_ = true;
  Connect(Hello("a", 1));
  ASSERT_EQ(persists_.size(), 1U);
  EXPECT_EQ(persists_[0].round, 1);
  EXPECT_FALSE(persists_[0].ended);
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
  Give(StoreDone{kJob, persists_[0].sequence + 1});
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
  Give(StoreDone{kJob, persists_[0].sequence});
  EXPECT_TRUE(Told<RoundStart>("a").has_value());
}

TEST_F(JobJoin, MasterPortUnknown_WaitsForItAndSaysSo) {
  Give(Hello("a", 2));
  Give(Hello("b", 2));
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  EXPECT_NE(Told<Waiting>("a")->text.find("port of host host-a"), std::string::npos)
      << Told<Waiting>("a")->text;
  Give(AgentHeard{Ref("b"), 7});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Give(AgentHeard{Ref("a"), 70'000});
  EXPECT_TRUE(Said(Reason::kInvalid));
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Give(AgentHeard{Ref("a"), 8});
  EXPECT_EQ(Told<RoundStart>("b")->master_port, 8U);
}

TEST_F(JobJoin, NodeRanksGiven_AreHonouredAndMasterIsNodeRankZero) {
  AgentConnected a = Hello("a", 2);
  a.node_rank = 1;
  Connect(a);
  Connect(Hello("b", 2));
  EXPECT_EQ(Told<RoundStart>("a")->node_rank, 1);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 0);
  EXPECT_EQ(Told<RoundStart>("a")->master_addr, "addr-b");
}

TEST_F(JobJoin, NodeRankTwice_IsRefusedNamingBoth) {
  AgentConnected a = Hello("a", 3);
  a.node_rank = 0;
  AgentConnected b = Hello("b", 3);
  b.node_rank = 0;
  Connect(a);
  Connect(b);
  const auto refused = Told<Rejected>("b");
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, Reason::kNodeRankTaken);
  EXPECT_NE(refused->text.find("host-a (a)"), std::string::npos) << refused->text;
  EXPECT_NE(refused->text.find("host-b (b)"), std::string::npos) << refused->text;
}

TEST_F(JobJoin, NodeRankOfOneThatLeft_IsFreeAgain) {
  AgentConnected a = Hello("a", 2);
  a.node_rank = 1;
  AgentConnected b = Hello("b", 2);
  b.node_rank = 1;
  Connect(Hello("x", 2));
  Connect(a);
  Leave("a");
  Stopped("x", 1);
  Connect(b);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
}

TEST_F(JobJoin, NodeRankOutOfRange_IsRefusedAndMakesNoJob) {
  AgentConnected a = Hello("a", 2);
  a.node_rank = 2;
  Connect(a);
  EXPECT_EQ(Told<Rejected>("a")->reason, Reason::kNodeRankOutOfRange);
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
}

TEST_F(JobJoin, OtherTerms_AreRefusedAndTheJobGoesOn) {
  Connect(Hello("a", 2));
  Connect(Hello("b", 3));
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kTermsDiffer);
  Connect(Hello("c", 2, /*max_restarts=*/1));
  EXPECT_EQ(Told<Rejected>("c")->reason, Reason::kTermsDiffer);
  AgentConnected d = Hello("d", 2);
  d.plan.global_batch_size = 64;
  Connect(d);
  EXPECT_EQ(Told<Rejected>("d")->reason, Reason::kPlanDiffers);
  Connect(Hello("e", 2));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobJoin, OtherTermsWhileOthersWait_TheyHearOfItOnce) {
  Connect(Hello("a", 2));
  AgentConnected b = Hello("b", 2);
  b.plan.global_batch_size = 64;
  Clear();
  Connect(b);
  EXPECT_THAT(Told<Waiting>("a")->text,
              AllOf(HasSubstr("1 of 2 nodes"), HasSubstr("host host-b was refused"),
                    HasSubstr("--global-batch-size=64")));
  Clear();
  Connect(b);
  EXPECT_FALSE(Told<Waiting>("a").has_value());
}

TEST_F(JobJoin, AsManyAgainAsTheJobHas_TheLastIsRefusedWithTheCount) {
  StartJob(2);
  Connect(Hello("c", 2));
  EXPECT_EQ(Told<Spare>("c")->place, 1);
  Connect(Hello("d", 2));
  ASSERT_TRUE(Told<Rejected>("d").has_value());
  EXPECT_EQ(Told<Rejected>("d")->reason, Reason::kJobFull);
  EXPECT_NE(Told<Rejected>("d")->text.find("2 nodes"), std::string::npos);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobJoin, SecondNodeOfAOneNodeJob_IsRefused) {
  StartJob(1);
  Connect(Hello("b", 1));
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kJobFull);
}

TEST_F(JobJoin, PlanAsked_EveryMemberGetsIt) {
  AgentConnected a = Hello("a", 2);
  a.plan.global_batch_size = 64;
  AgentConnected b = Hello("b", 2);
  b.plan = a.plan;
  Connect(a);
  Connect(b);
  ASSERT_TRUE(Told<RoundStart>("a")->plan.has_value());
  EXPECT_EQ(Told<RoundStart>("a")->plan->global_batch_size, 64);
  EXPECT_EQ(Told<RoundStart>("a")->plan, Told<RoundStart>("b")->plan);
  a.plan.batch_policy = plan::BatchPolicy::kFail;  // the default of a fixed size is said
  EXPECT_EQ(Told<RoundStart>("b")->plan_request, a.plan);
}

TEST_F(JobJoin, PlanImpossible_EndsTheJobWithUsageCode) {
  AgentConnected a = Hello("a", 1);
  a.plan.global_batch_size = 7;
  Connect(a);
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kPlanImpossible);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 2);
  EXPECT_FALSE(Told<RoundStart>("a").has_value());
}

TEST_F(JobJoin, CountChanges_EverybodyWaitingIsTold) {
  Connect(Hello("a", 4));
  Connect(Hello("b", 4));
  EXPECT_EQ(Told<Waiting>("a")->nodes_joined, 2);
  EXPECT_NE(Told<Waiting>("a")->text.find("host-a, host-b"), std::string::npos);
  Connect(Hello("c", 4));
  EXPECT_EQ(Told<Waiting>("a")->nodes_joined, 3);
  Leave("b");
  EXPECT_EQ(Told<Waiting>("a")->nodes_joined, 2);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
}

TEST_F(JobJoin, ManyNodes_AreToldOfFewerChanges) {
  constexpr std::int32_t kNodes = 512;
  for (std::int32_t i = 0; i + 1 < kNodes; ++i) {
    Connect(Hello(absl::StrCat("n", i), kNodes));
  }
  EXPECT_EQ(Told<Waiting>("n510")->nodes_joined, 511);
  EXPECT_GT(Told<Waiting>("n0")->nodes_joined, 450);
  EXPECT_LT(TimesTold<Waiting>("n0"), 150);
}

TEST_F(JobJoin, NobodyElseComes_EndsWithJoinTimeoutNamingWhoIsMissing) {
  Connect(Hello("a", 3));
  PassAlive(59 * kSecond, {"a"});
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  PassAlive(2 * kSecond, {"a"});
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kJoinTimeout);
  EXPECT_EQ(Told<JobDone>("a")->exit_code, 1);
  for (const char* part : {"1 of 3", "host-a", "node rank 1-2"}) {
    EXPECT_NE(Told<JobDone>("a")->text.find(part), std::string::npos)
        << part << " in " << Told<JobDone>("a")->text;
  }
}

TEST_F(JobJoin, SmallestJoinDeadline_Counts) {
  AgentConnected b = Hello("b", 3);
  b.join_timeout = 10 * kSecond;
  Connect(Hello("a", 3));
  Connect(b);
  PassAlive(11 * kSecond, {"a", "b"});
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kJoinTimeout);
}

TEST_F(JobJoin, OwnerOfTheSmallestDeadlineLeft_TheNextCounts) {
  AgentConnected b = Hello("b", 3);
  b.join_timeout = 10 * kSecond;
  Connect(Hello("a", 3));
  Connect(b);
  Leave("b");
  PassAlive(59 * kSecond, {"a"});
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  PassAlive(2 * kSecond, {"a"});
  EXPECT_EQ(Told<JobDone>("a")->reason, Reason::kJoinTimeout);
}

TEST_F(JobJoin, MasterPortNeverTold_JoinTimeoutSaysSo) {
  Give(Hello("a", 1));
  PassAlive(61 * kSecond, {"a"});
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_NE(Told<JobDone>("a")->text.find("master port"), std::string::npos);
}

TEST_F(JobJoin, StoreNeverAnswers_JoinTimeoutSaysSo) {
  hold_store_ = true;
  Connect(Hello("a", 1));
  PassAlive(61 * kSecond, {"a"});
  ASSERT_TRUE(Told<JobDone>("a").has_value());
  EXPECT_NE(Told<JobDone>("a")->text.find("could not be stored"), std::string::npos);
}

TEST_F(JobJoin, LastNodeAtTheLastMoment_TheStoreStillHasItsTime) {
  hold_store_ = true;
  Connect(Hello("a", 2));
  PassAlive(59 * kSecond, {"a"});
  Connect(Hello("b", 2));
  PassAlive(9 * kSecond, {"a", "b"});
  EXPECT_EQ(StateOfJob(), Job::State::kForming);
  Give(StoreDone{kJob, persists_.back().sequence});
  EXPECT_TRUE(Told<RoundStart>("a").has_value());
}

TEST_F(JobJoin, BackWhileGathering_IsTheSameNode) {
  Connect(Hello("a", 2));
  Disconnect("a");
  Connect(Hello("b", 2));
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Clear();
  Give(Hello("a", 2));
  EXPECT_TRUE(Told<Welcome>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->node_rank, 0);
}

TEST_F(JobJoin, BackWhileRunning_GetsItsRoundAgain) {
  StartJob(2);
  Disconnect("b");
  Pass(kSecond / 2);
  Give(Hello("b", 2));
  EXPECT_TRUE(Told<Welcome>("b").has_value());
  ASSERT_TRUE(Told<RoundStart>("b").has_value());
  EXPECT_EQ(Told<RoundStart>("b")->round, 1);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
  EXPECT_EQ(TimesTold<RoundStart>("a"), 0);
  PassAlive(10 * kSecond, {"a", "b"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobJoin, NewStreamBeforeTheOldOneEnded_IsTheSameNode) {
  StartJob(1);
  Give(Hello("a", 1));
  EXPECT_EQ(Told<RoundStart>("a")->round, 1);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobJoin, BackWhileStopping_GetsRoundStopUntilItAnswered) {
  StartJob(2, 1);
  Disconnect("b");
  Fail("a", 1, 3);
  Clear();
  Give(Hello("b", 2, 1));
  EXPECT_EQ(Told<RoundStop>("b")->round, 1);
  EXPECT_FALSE(Told<RoundStart>("b").has_value());
  Stopped("b", 1);
  Clear();
  Give(Hello("b", 2, 1));
  EXPECT_FALSE(Told<RoundStop>("b").has_value());
}

TEST_F(JobJoin, BackAfterTheEnd_GetsTheResult) {
  StartJob(2);
  Disconnect("b");
  Give(StopRequested{Ref("a"), 2});
  Stopped("a", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kStopping);
  Give(Hello("b", 2));
  Stopped("b", 1);
  Disconnect("b");
  Clear();
  Give(Hello("b", 2));
  EXPECT_EQ(Told<JobDone>("b")->exit_code, 130);
}

TEST_F(JobJoin, LostIncarnationComesBack_IsStale) {
  StartJob(2);
  Disconnect("b");
  Pass(2 * kSecond);
  Give(Hello("b", 2));
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kStaleIncarnation);
}

TEST_F(JobJoin, ReplacementBeforeTheDeadOneIsGivenUp_TakesItsPlace) {
  AgentConnected b = Hello("b", 2);
  b.node_rank = 1;
  AgentConnected c = Hello("c", 2);
  c.node_rank = 1;
  Connect(Hello("a", 2));
  Connect(b);
  Disconnect("b");
  Connect(c);
  EXPECT_FALSE(Told<Rejected>("c").has_value());
  EXPECT_TRUE(Told<Spare>("c").has_value());
  PassAlive(2 * kSecond, {"a", "c"});
  Stopped("a", 1);
  ASSERT_TRUE(Told<RoundStart>("c").has_value());
  EXPECT_EQ(Told<RoundStart>("c")->round, 2);
  EXPECT_EQ(Told<RoundStart>("c")->node_rank, 1);
  EXPECT_EQ(Told<RoundStart>("c")->restart_count, 0);
}

TEST_F(JobJoin, ReplacementCameAndTheOldOneReturned_TheOldOneKeepsItsPlace) {
  StartJob(2);
  Disconnect("b");
  Connect(Hello("c", 2));
  Give(Hello("b", 2));
  PassAlive(10 * kSecond, {"a", "b", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_FALSE(Told<RoundStart>("c").has_value());
  Succeed("a", 1);
  Succeed("b", 1);
  EXPECT_EQ(Told<JobDone>("c")->reason, Reason::kAllSucceeded);
}

TEST_F(JobJoin, BackWhileItsReplacementWaitsOnTheSameNodeRank_TheReplacementIsRefused) {
  AgentConnected b = Hello("b", 2);
  b.node_rank = 1;
  AgentConnected c = Hello("c", 2);
  c.node_rank = 1;
  Connect(Hello("a", 2));
  Connect(b);
  Disconnect("b");
  Connect(c);
  Give(b);
  EXPECT_EQ(Told<Rejected>("c")->reason, Reason::kNodeRankTaken);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_EQ(Told<RoundStart>("b")->node_rank, 1);
}

TEST_F(JobJoin, BackWhenItsReplacementRunsOnTheSameNodeRank_IsRefused) {
  AgentConnected b = Hello("b", 2);
  b.node_rank = 1;
  AgentConnected c = Hello("c", 2);
  c.node_rank = 1;
  Connect(b);
  Disconnect("b");
  Connect(c);
  Connect(Hello("a", 2));
  ASSERT_EQ(Told<RoundStart>("c")->node_rank, 1);
  Give(b);
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kNodeRankTaken);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

}  // namespace
}  // namespace ddl::core
