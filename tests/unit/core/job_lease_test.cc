// Workers that may outlive what is known here: of a member whose stream broke, and
// of a coordinator's last life. Both rules are options.
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

Options BreaksProveNothing() {
  Options options;
  options.broken_stream_proves_nothing = true;
  return options;
}

class JobLease : public Harness {
 protected:
  JobLease() : Harness(BreaksProveNothing()) {}

  // "a" and "b" run round 1; the stream of "b" breaks, and it does not come back.
  void LoseB() {
    StartJob(2, 1);
    Give(AgentHeard{Ref("b"), 0});
    Disconnect("b");
    PassAlive(options_.reconnect_grace, {"a"});
    ASSERT_EQ(Told<RoundStop>("a")->reason, Reason::kNodeLost) << "that is said at once";
  }
};

TEST_F(JobLease, StreamBroke_TheNextRoundWaitsForTheLease) {
  LoseB();
  Stopped("a", 1);
  Connect(Hello("c", 2, 1));
  EXPECT_NE(Told<Waiting>("c")->text.find("workers of an earlier round may live for 4 s"),
            std::string::npos)
      << Told<Waiting>("c")->text;
  PassAlive(options_.heartbeat_timeout - options_.reconnect_grace - kSecond, {"a", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(kSecond, {"a", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
  EXPECT_EQ(Told<RoundStart>("c")->round, 2);
}

TEST_F(JobLease, JobIsForgottenMeanwhile_TheNextOfThatIdWaits) {
  LoseB();
  Leave("a");
  ASSERT_EQ(rendezvous_.num_jobs(), 0U);
  Clear();
  Connect(Hello("c", 1));
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(options_.heartbeat_timeout - options_.reconnect_grace, {"c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobLease, ItHadStopped_NothingToWaitFor) {
  StartJob(2, 1);
  Fail("a", 1, 3);
  Stopped("b", 1);
  Disconnect("b");
  PassAlive(options_.reconnect_grace, {"a"});
  Stopped("a", 1);
  Connect(Hello("c", 2, 1));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobLease, ItSaidGoodbye_NothingToWaitFor) {
  StartJob(2, 1);
  Leave("b");
  Stopped("a", 1);
  Connect(Hello("c", 2, 1));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

class JobGivenUp : public Harness {};

// It stands still since its last heartbeat, perhaps, and hears nothing: its
// workers live until their lease ends.
TEST_F(JobGivenUp, DidNotStopInTime_TheNextRoundWaitsForItsLease) {
  StartJob(2, 1);
  Fail("a", 1, 3);
  Stopped("a", 1);
  Connect(Hello("c", 2, 1));
  PassAlive(15 * kSecond, {"a", "b", "c"});
  ASSERT_EQ(Told<Rejected>("b")->reason, Reason::kStopTimeout);
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(options_.heartbeat_timeout, {"a", "c"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobGivenUp, SilentForTheWholeTimeout_ItsLeaseIsOver) {
  StartJob(2, 1);
  PassAlive(options_.heartbeat_timeout, {"a"});
  ASSERT_EQ(Told<Rejected>("b")->reason, Reason::kStaleIncarnation);
  Stopped("a", 1);
  Connect(Hello("c", 2, 1));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

Options HoldAfterStart() {
  Options options;
  options.hold_after_start = 5 * kSecond;
  return options;
}

class JobAfterStart : public Harness {
 protected:
  JobAfterStart() : Harness(HoldAfterStart()) {}
};

TEST_F(JobAfterStart, FirstJobs_Wait) {
  Connect(Hello("a", 1));
  PassAlive(4 * kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kGathering);
  PassAlive(kSecond, {"a"});
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

TEST_F(JobAfterStart, LaterJobs_DoNot) {
  Connect(Hello("a", 1));
  PassAlive(5 * kSecond, {"a"});
  Succeed("a", 1);
  Leave("a");
  Connect(Hello("b", 1));
  EXPECT_EQ(StateOfJob(), Job::State::kRunning);
}

}  // namespace
}  // namespace ddl::core
