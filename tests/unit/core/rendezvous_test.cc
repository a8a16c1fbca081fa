// Several jobs at one coordinator, and words from nowhere.
#include "agent/core/rendezvous.h"

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "tests/unit/core/harness.h"

namespace ddl::core {
namespace {

class RendezvousTest : public Harness {
 protected:
  static AgentConnected HelloOf(const std::string& job_id, const std::string& name,
                                std::int32_t nodes) {
    AgentConnected hello = Hello(name, nodes);
    hello.agent.job_id = job_id;
    return hello;
  }
};

TEST_F(RendezvousTest, WordOfAnUnknownJob_IsIgnoredWithAReason) {
  Give(WorkersSucceeded{Ref("a"), 1});
  EXPECT_TRUE(Said(Reason::kStaleIncarnation));
  EXPECT_TRUE(replies_.empty());
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
}

TEST_F(RendezvousTest, EndsOfStreamsAndTimersOfUnknownJobs_AreNothing) {
  Give(AgentDisconnected{Ref("a")});
  Give(AgentLeft{Ref("a"), ""});
  Give(TimerFired{TimerId{TimerKind::kJoin, kJob, ""}});
  Give(StoreDone{kJob, 1});
  EXPECT_TRUE(explains_.empty());
}

TEST_F(RendezvousTest, TwoJobs_DoNotTouchEachOther) {
  Connect(HelloOf("one", "a", 2));
  Connect(HelloOf("two", "b", 2));
  Connect(HelloOf("one", "c", 2));
  EXPECT_EQ(rendezvous_.FindJob("one")->state(), Job::State::kRunning);
  EXPECT_EQ(rendezvous_.FindJob("two")->state(), Job::State::kGathering);
  Give(WorkersSucceeded{AgentRef{"two", "a"}, 1});
  EXPECT_TRUE(Said(Reason::kStaleIncarnation));
}

TEST_F(RendezvousTest, TwoIdsThatWaitForEachOther_AreBothNamed) {
  Connect(HelloOf("one", "a", 2));
  Pass(kSecond);
  Connect(HelloOf("two", "b", 2));
  for (int i = 0; i < 62; ++i) {
    Give(AgentHeard{AgentRef{"one", "a"}, 0});
    Give(AgentHeard{AgentRef{"two", "b"}, 0});
    Pass(kSecond);
    if (Told<JobDone>("a").has_value()) {
      Give(AgentLeft{AgentRef{"one", "a"}, ""});  // its record is gone by then
    }
  }
  ASSERT_TRUE(Told<JobDone>("a").has_value() && Told<JobDone>("b").has_value());
  EXPECT_NE(Told<JobDone>("a")->text.find("job two"), std::string::npos)
      << Told<JobDone>("a")->text;
  EXPECT_NE(Told<JobDone>("b")->text.find("job one"), std::string::npos)
      << Told<JobDone>("b")->text;
}

TEST_F(RendezvousTest, MoreJobsThanTheLimit_AreRefused) {
  for (std::size_t i = 0; i < limits::kMaxJobs; ++i) {
    Give(HelloOf(absl::StrCat("job", i), "a", 2));
  }
  Give(HelloOf("one more", "z", 2));
  EXPECT_EQ(Told<Rejected>("z")->reason, Reason::kLimit);
  EXPECT_EQ(rendezvous_.num_jobs(), limits::kMaxJobs);
}

TEST_F(RendezvousTest, LostIncarnation_IsStaleAlsoWhenItsJobIsForgotten) {
  StartJob(1);
  Pass(10 * kSecond);
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
  Clear();
  Connect(Hello("a", 1));
  EXPECT_EQ(Told<Rejected>("a")->reason, Reason::kStaleIncarnation);
  EXPECT_EQ(rendezvous_.num_jobs(), 0U);
  Connect(Hello("b", 1));
  EXPECT_TRUE(Told<RoundStart>("b").has_value());
}

TEST(GoneAgents, BeyondItsCapacity_ForgetsTheOldest) {
  GoneAgents gone;
  for (std::size_t i = 0; i <= GoneAgents::kCapacity; ++i) {
    gone.Add(AgentRef{"j", std::to_string(i)});
  }
  EXPECT_FALSE(gone.Contains(AgentRef{"j", "0"}));
  EXPECT_TRUE(gone.Contains(AgentRef{"j", "1"}));
  EXPECT_TRUE(gone.Contains(AgentRef{"j", std::to_string(GoneAgents::kCapacity)}));
}

}  // namespace
}  // namespace ddl::core
