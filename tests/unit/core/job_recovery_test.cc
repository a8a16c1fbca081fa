// A coordinator that was restarted: its agents come back from a round of which
// it knows nothing.
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

class JobRecovery : public Harness {
 protected:
  static AgentConnected Survivor(const std::string& name, std::int64_t round,
                                 std::int32_t restart_count = 0) {
    AgentConnected hello = Hello(name, 2, /*max_restarts=*/3);
    hello.last_round = round;
    hello.restart_count = restart_count;
    return hello;
  }
  // Until every agent of the coordinator's last life must have given up.
  [[nodiscard]] Duration Quarantine() const {
    return options_.heartbeat_timeout + options_.reconnect_grace;
  }
};

TEST_F(JobRecovery, Survivors_StopTheirRoundAndTheNextCountsOn) {
  Connect(Survivor("a", 7, 2));
  Connect(Survivor("b", 7, 2));
  ASSERT_TRUE(Told<RoundStop>("a").has_value());
  EXPECT_EQ(Told<RoundStop>("a")->round, 7);
  EXPECT_EQ(Told<RoundStop>("a")->reason, Reason::kRecovered);
  EXPECT_TRUE(Told<RoundStop>("a")->will_restart);
  Stopped("a", 7);
  Stopped("b", 7);
  PassAlive(Quarantine() - kSecond, {"a", "b"});
  EXPECT_FALSE(Told<RoundStart>("a").has_value()) << "a third may still run round 7";
  PassAlive(kSecond, {"a", "b"});
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_EQ(Told<RoundStart>("a")->round, 8);
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 2);
}

TEST_F(JobRecovery, OneHasNotStopped_NoRoundForms) {
  Connect(Survivor("a", 7));
  Connect(Survivor("b", 7));
  Connect(Hello("c", 2, 3));
  Stopped("a", 7);
  PassAlive(Quarantine() + kSecond, {"a", "b", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  Stopped("b", 7);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobRecovery, OneNeverStops_IsGivenUp) {
  Connect(Survivor("a", 7));
  Connect(Survivor("b", 7));
  Connect(Hello("c", 2, 3));
  Stopped("a", 7);
  PassAlive(15 * kSecond, {"a", "b", "c"});
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kStopTimeout);
  PassAlive(options_.heartbeat_timeout, {"a", "c"});  // it may not have heard that
  EXPECT_EQ(Told<RoundStart>("c")->num_nodes, 2);
}

TEST_F(JobRecovery, SurvivorReconnects_IsToldToStopAgain) {
  Connect(Survivor("a", 7));
  Disconnect("a");
  Clear();
  Connect(Survivor("a", 7));
  EXPECT_EQ(Told<RoundStop>("a")->round, 7);
}

TEST_F(JobRecovery, TheirRoundsDiffer_TheHighestCounts) {
  Connect(Survivor("a", 7));
  Connect(Survivor("b", 8));
  Stopped("a", 7);
  Stopped("b", 8);
  PassAlive(Quarantine(), {"a", "b"});
  EXPECT_EQ(Told<RoundStart>("a")->round, 9);
}

TEST_F(JobRecovery, LateSurvivor_StopsAndWaitsAsASpare) {
  Connect(Survivor("a", 7));
  Stopped("a", 7);
  Connect(Hello("b", 2, 3));
  PassAlive(Quarantine(), {"a", "b"});
  ASSERT_EQ(StateOfJob(), Job::State::kRunning);
  Connect(Survivor("c", 7));
  EXPECT_EQ(Told<RoundStop>("c")->round, 7);
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  Stopped("c", 7);
  EXPECT_EQ(Told<Spare>("c")->place, 1);
}

TEST_F(JobRecovery, SurvivorWhileARoundForms_ThatRoundDoesNotStart) {
  hold_store_ = true;
  Connect(Hello("a", 2, 3));
  Connect(Hello("b", 2, 3));
  ASSERT_EQ(StateOfJob(), Job::State::kForming);
  Connect(Survivor("c", 7, 1));
  Give(StoreDone{kJob, persists_.back().sequence});
  EXPECT_FALSE(Told<RoundStart>("a").has_value()) << "c still runs round 7";
  hold_store_ = false;
  Stopped("c", 7);
  PassAlive(Quarantine(), {"a", "b", "c"});
  ASSERT_TRUE(Told<RoundStart>("a").has_value());
  EXPECT_GT(Told<RoundStart>("a")->round, 7);
  EXPECT_EQ(Told<RoundStart>("a")->restart_count, 1);
}

TEST_F(JobRecovery, SurvivorWhileNewcomersRun_TheNextRoundWaitsForTheOthersOfItsRound) {
  StartJob(2, 3);
  Connect(Survivor("c", 7));
  Stopped("c", 7);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Stopped("b", 1);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering) << "a fourth may still run round 7";
  PassAlive(Quarantine(), {"a", "b", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_EQ(Told<RoundStart>("a")->round, 8);
}

TEST_F(JobRecovery, HisOldResult_IsNotTakenForTheNextRounds) {
  Connect(Survivor("a", 7));
  Connect(Survivor("b", 7));
  Succeed("a", 7);
  Fail("b", 7, 3);
  EXPECT_FALSE(Told<JobDone>("a").has_value());
  EXPECT_TRUE(Said(Reason::kStaleRound));
}

TEST_F(JobRecovery, StoppingTakesLongerThanTheJoinTimeout_TheTimeoutCountsFromThen) {
  for (const char* name : {"a", "b"}) {
    AgentConnected survivor = Survivor(name, 7);
    survivor.join_timeout = 8 * kSecond;
    survivor.stop_grace = 30 * kSecond;
    Connect(survivor);
  }
  PassAlive(7 * kSecond, {"a", "b"});
  Stopped("a", 7);
  PassAlive(2 * kSecond, {"a", "b"});
  Stopped("b", 7);
  EXPECT_EQ(Told<RoundStart>("a")->round, 8);
}

TEST_F(JobRecovery, RoundThatCannotBe_IsRefused) {
  Connect(Survivor("a", -1));
  EXPECT_EQ(Told<Rejected>("a")->reason, Reason::kInvalid);
  Connect(Survivor("b", std::int64_t{1} << 62));
  EXPECT_EQ(Told<Rejected>("b")->reason, Reason::kInvalid);
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
}

}  // namespace
}  // namespace ddl::core
