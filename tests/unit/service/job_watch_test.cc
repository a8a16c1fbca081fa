// Beginnings and ends of jobs, from the core's steps.
#include "agent/service/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <variant>
#include <vector>

namespace ddl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JobWatchTest : public testing::Test {
 protected:
  // Steps the core, answers what it stores, and notes what the watch says.
  void Step(const core::Event& event) {
    std::vector<core::Event> more;
    for (const core::Effect& effect : core_.Step(now_, event)) {
      if (const auto* persist = std::get_if<core::Persist>(&effect)) {
        more.emplace_back(core::StoreDone{persist->job_id, persist->sequence});
      }
    }
    if (const auto line = watch_.Look(core_, event); line.has_value()) {
      lines_.push_back(*line);
    }
    for (const core::Event& next : more) {
      Step(next);
    }
  }
  std::vector<std::string> TakeLines() { return std::exchange(lines_, {}); }

  static core::AgentConnected Hello(const std::string& job, const std::string& incarnation,
                                    int min_nodes, int max_nodes) {
    core::AgentConnected hello;
    hello.agent = {job, incarnation};
    hello.host = "a";
    hello.address = "127.0.0.1";
    hello.nproc = 1;
    hello.min_nodes = min_nodes;
    hello.max_nodes = max_nodes;
    hello.join_timeout = std::chrono::seconds(30);
    hello.master_port = 1;
    return hello;
  }

  Instant now_{};
  core::Rendezvous core_{core::Options()};
  JobWatch watch_;
  std::vector<std::string> lines_;
};

TEST_F(JobWatchTest, OneJob_HasOneLineForItsBeginAndOneForItsEnd) {
  const core::AgentConnected hello = Hello("j", "one", 1, 1);
  Step(hello);
  EXPECT_THAT(TakeLines(), ElementsAre("job j has begun: host a is there, of 1 node"));
  Step(core::AgentHeard{hello.agent});
  EXPECT_THAT(TakeLines(), IsEmpty());
  Step(core::WorkersSucceeded{hello.agent, 1});
  EXPECT_THAT(TakeLines(), ElementsAre(HasSubstr("job j has ended with exit code 0")));
  Step(core::AgentLeft{hello.agent, "done"});
  EXPECT_THAT(TakeLines(), IsEmpty());
}

TEST_F(JobWatchTest, FailedJob_SaysWhy) {
  const core::AgentConnected hello = Hello("j", "one", 1, 1);
  Step(hello);
  core::WorkerFailure failure;
  failure.host = "a";
  failure.exit_code = 3;
  Step(core::WorkerFailed{hello.agent, 1, failure});
  Step(core::RoundStopped{hello.agent, 1});
  EXPECT_THAT(TakeLines(), ElementsAre(testing::_, HasSubstr("has ended with exit code 3: ")));
}

TEST_F(JobWatchTest, IdUsedAgain_IsAnotherJob) {
  const core::AgentConnected hello = Hello("j", "one", 1, 1);
  Step(hello);
  Step(core::WorkersSucceeded{hello.agent, 1});
  TakeLines();
  Step(Hello("j", "two", 1, 1));
  EXPECT_THAT(TakeLines(), ElementsAre(HasSubstr("job j has begun")));
}

TEST_F(JobWatchTest, NodesThatGoBeforeTheJobForms_EndIt) {
  const core::AgentConnected hello = Hello("j", "one", 2, 4);
  Step(hello);
  EXPECT_THAT(TakeLines(), ElementsAre("job j has begun: host a is there, of 2 to 4 nodes"));
  Step(core::AgentLeft{hello.agent, "stopped"});
  EXPECT_THAT(TakeLines(), ElementsAre(HasSubstr("job j has ended")));
}

TEST_F(JobWatchTest, RefusedHello_IsNoJob) {
  Step(Hello("j", "one", 0, 0));
  EXPECT_THAT(TakeLines(), IsEmpty());
}

}  // namespace
}  // namespace ddl
