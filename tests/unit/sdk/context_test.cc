// Context: environment, registration over the real wire, keys, barriers, plan.
#include "ddl/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "ddl/out_of_memory.h"
#include "tests/unit/sdk/gateway_server.h"
#include "tests/unit/sdk/world.h"
#include "worker_sdk/src/environment.h"
#include "worker_sdk/src/grpc_gateway.h"
#include "worker_sdk/src/plan_bridge.h"

namespace ddl {
namespace {

using ::ddl::testing::GatewayOptions;
using ::ddl::testing::GatewayServer;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<internal::Environment> Read(const Variables& variables) {
  return internal::ReadEnvironment([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  });
}

std::string TextOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST(Environment, Nothing_IsAWorldOfOne) {
  const auto environment = Read({});
  ASSERT_TRUE(environment.ok());
  EXPECT_TRUE(environment->gateway.empty());
  EXPECT_EQ(environment->membership.world_size, 1);
  EXPECT_EQ(environment->membership.rank, 0);
  EXPECT_FALSE(environment->membership.has_launcher);
}

TEST(Environment, AllThatTheLauncherSets_IsRead) {
  const auto environment = Read({{"RANK", "5"},
                                 {"LOCAL_RANK", "1"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"GROUP_RANK", "1"},
                                 {"GROUP_WORLD_SIZE", "2"},
                                 {"TORCHELASTIC_RESTART_COUNT", "3"},
                                 {"MASTER_ADDR", "10.0.0.1"},
                                 {"MASTER_PORT", "29500"},
                                 {"DDL_ROUND", "7"},
                                 {"DDL_JOB_ID", "job"},
                                 {"DDL_GATEWAY", "unix:/x"}});
  ASSERT_TRUE(environment.ok()) << environment.status();
  const internal::Membership& m = environment->membership;
  EXPECT_EQ(environment->gateway, "unix:/x");
  EXPECT_EQ(m.rank, 5);
  EXPECT_EQ(m.local_rank, 1);
  EXPECT_EQ(m.world_size, 8);
  EXPECT_EQ(m.local_world_size, 4);
  EXPECT_EQ(m.node_rank, 1);
  EXPECT_EQ(m.num_nodes, 2);
  EXPECT_EQ(m.restart_count, 3);
  EXPECT_EQ(m.master_addr, "10.0.0.1");
  EXPECT_EQ(m.master_port, 29500);
  EXPECT_EQ(m.round, 7);
  EXPECT_EQ(m.job_id, "job");
  EXPECT_TRUE(m.has_launcher);
}

TEST(Environment, NotANumber_IsNamedWithItsValue) {
  EXPECT_THAT(TextOf(Read({{"RANK", "x1"}}).status()), HasSubstr("RANK=\"x1\" is not a number"));
  EXPECT_THAT(TextOf(Read({{"WORLD_SIZE", "0"}}).status()), HasSubstr("WORLD_SIZE=\"0\""));
  EXPECT_THAT(TextOf(Read({{"WORLD_SIZE", "4 "}}).status()), HasSubstr("WORLD_SIZE=\"4 \""));
  EXPECT_THAT(TextOf(Read({{"LOCAL_RANK", "-1"}}).status()), HasSubstr("LOCAL_RANK=\"-1\""));
  EXPECT_THAT(TextOf(Read({{"RANK", "4"}, {"WORLD_SIZE", "4"}}).status()),
              HasSubstr("RANK=4 is not below WORLD_SIZE=4"));
}

TEST(Environment, WorldWithoutGateway_SaysToUseTheLauncher) {
  const auto environment = Read({{"RANK", "0"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(environment.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(environment.status()), HasSubstr("start the program with ddlaunch"));
}

TEST(Environment, GatewayWithoutRoundOrLocalRank_NamesTheMissing) {
  EXPECT_THAT(TextOf(Read({{"DDL_GATEWAY", "unix:/x"}, {"DDL_ROUND", "1"}}).status()),
              HasSubstr("LOCAL_RANK is not"));
  EXPECT_THAT(TextOf(Read({{"DDL_GATEWAY", "unix:/x"}, {"LOCAL_RANK", "1"}}).status()),
              HasSubstr("DDL_ROUND is not"));
}

TEST(Environment, AgentThatSaysOtherwise_IsRefused) {
  const auto environment = *Read({{"RANK", "1"},
                                  {"WORLD_SIZE", "2"},
                                  {"DDL_GATEWAY", "unix:/x"},
                                  {"LOCAL_RANK", "1"},
                                  {"DDL_ROUND", "1"}});
  internal::Membership agent = environment.membership;
  EXPECT_TRUE(internal::CheckAgainst(environment, agent).ok());
  agent.rank = 0;
  EXPECT_THAT(TextOf(internal::CheckAgainst(environment, agent)),
              HasSubstr("RANK=1 but the agent says 0"));
  agent = environment.membership;
  agent.world_size = 4;
  EXPECT_THAT(TextOf(internal::CheckAgainst(environment, agent)),
              HasSubstr("WORLD_SIZE=2 but the agent says 4"));
}

// Create reads this process's environment: none of it may be left from outside.
class ContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name :
         {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
          "DDL_GATEWAY", "DDL_ROUND", "DDL_JOB_ID", "TORCHELASTIC_RESTART_COUNT",
          "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}) {
      ::unsetenv(name);
    }
  }
  void TearDown() override { SetUp(); }

  static void Join(const GatewayServer& server, const std::string& local_rank,
                   const std::string& round = "1") {
    ::setenv("DDL_GATEWAY", server.address().c_str(), 1);
    ::setenv("DDL_ROUND", round.c_str(), 1);
    ::setenv("LOCAL_RANK", local_rank.c_str(), 1);
  }
};

TEST_F(ContextTest, ByHand_IsAWorldOfOneThatWorks) {
  const auto context = Context::Create();
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ(context->world_size(), 1);
  EXPECT_FALSE(context->has_launcher());
  EXPECT_TRUE(context->Publish("key", "value").ok());
  EXPECT_EQ(*context->Fetch("key", seconds(0)), "value");
  EXPECT_TRUE(context->Barrier("start", seconds(0)).ok());
  PlanDefaults defaults;
  defaults.global_batch_size = 32;
  defaults.max_micro_batch_size = 10;
  defaults.base_lr = 0.1;
  const auto plan = context->AgreePlan(defaults);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->ToString(),
            "global batch 32 = micro 8 x accumulation 4 x world 1, learning rate 0.1");
  EXPECT_EQ(plan->hash.size(), 16U);
  EXPECT_TRUE(context->ReportProgress(1, 2, 3).ok());
}

TEST_F(ContextTest, ByHandKeyThatNobodyWrote_FailsAtOnce) {
  const auto context = Context::Create();
  const auto value = context->Fetch("key", std::chrono::hours(1));
  EXPECT_EQ(value.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(value.status()), HasSubstr("the only rank"));
}

TEST_F(ContextTest, Registered_KnowsItsPlace) {
  GatewayOptions options;
  options.world_size = 4;
  options.restart_count = 2;
  const GatewayServer server(options);
  Join(server, "3");
  const auto context = Context::Create();
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ(context->rank(), 3);
  EXPECT_EQ(context->local_rank(), 3);
  EXPECT_EQ(context->world_size(), 4);
  EXPECT_EQ(context->local_world_size(), 4);
  EXPECT_EQ(context->num_nodes(), 1);
  EXPECT_EQ(context->node_rank(), 0);
  EXPECT_EQ(context->restart_count(), 2);
  EXPECT_EQ(context->round(), 1);
  EXPECT_EQ(context->job_id(), "test-job");
  EXPECT_EQ(context->address(), "127.0.0.1");
  EXPECT_EQ(context->master_port(), 29500);
  EXPECT_TRUE(context->has_launcher());
}

TEST_F(ContextTest, RoundThatIsOver_IsAborted) {
  const GatewayServer server({});
  Join(server, "0", "9");
  const auto context = Context::Create();
  EXPECT_EQ(context.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(TextOf(context.status()),
              AllOf(HasSubstr("local rank 0, registering"), HasSubstr("the round is over")));
}

TEST_F(ContextTest, AgentThatIsGone_IsSaidAtOnce) {
  GatewayServer server({});
  Join(server, "0");
  const auto context = Context::Create();
  ASSERT_TRUE(context.ok());
  server.Stop();
  const absl::Status status = context->Publish("key", "value");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), AllOf(HasSubstr("rank 0, publishing key \"key\""),
                                    HasSubstr("is its ddlaunch still running?")));
  EXPECT_EQ(Context::Create().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ContextTest, KeyOfAnotherRank_ArrivesWhenItIsWritten) {
  GatewayOptions options;
  options.world_size = 2;
  const GatewayServer server(options);
  Join(server, "0");
  const auto zero = Context::Create();
  Join(server, "1");
  const auto one = Context::Create();
  ASSERT_TRUE(zero.ok() && one.ok());
  const std::string bytes("a\0b", 3);
  std::thread waiting([&] { EXPECT_EQ(*one->Fetch("key", seconds(30)), bytes); });
  EXPECT_TRUE(zero->Publish("key", bytes).ok());
  waiting.join();
  EXPECT_TRUE(zero->Publish("key", bytes).ok());
  EXPECT_EQ(one->Publish("key", "other").code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ContextTest, WaitInVain_SaysForWhatAndHowLong) {
  GatewayOptions options;
  options.world_size = 2;
  const GatewayServer server(options);
  Join(server, "1");
  const auto context = Context::Create();
  const auto value = context->Fetch("ddl/x", milliseconds(250));
  EXPECT_EQ(value.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(value.status()), HasSubstr("rank 1, waiting for key \"ddl/x\": not done "
                                                "within 250 ms"));
  const absl::Status barrier = context->Barrier("start", milliseconds(250));
  EXPECT_EQ(barrier.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(barrier), AllOf(HasSubstr("rank 1"), HasSubstr("barrier \"start\""),
                                     HasSubstr("1 of 2 ranks did not come")));
}

TEST_F(ContextTest, Barrier_OpensWhenAllAreThere) {
  GatewayOptions options;
  options.world_size = 2;
  const GatewayServer server(options);
  Join(server, "0");
  const auto zero = Context::Create();
  Join(server, "1");
  const auto one = Context::Create();
  std::thread other([&] { EXPECT_TRUE(one->Barrier("b", seconds(30)).ok()); });
  EXPECT_TRUE(zero->Barrier("b", seconds(30)).ok());
  other.join();
}

TEST_F(ContextTest, TooLongKeysAndValues_AreRefusedHere) {
  const auto context = Context::Create();
  EXPECT_EQ(context->Publish("", "v").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(context->Publish(std::string(257, 'k'), "v").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(context->Publish("k", std::string((512U << 10U) + 1, 'v')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(context->Publish("k", std::string(512U << 10U, 'v')).ok());
}

TEST_F(ContextTest, AgreedPlan_IsTheAgentsWithEveryField) {
  GatewayOptions options;
  options.world_size = 2;
  const GatewayServer server(options);
  Join(server, "0");
  const auto context = Context::Create();
  PlanDefaults defaults;
  defaults.global_batch_size = 128;
  defaults.max_micro_batch_size = 48;
  defaults.base_lr = 0.1;
  defaults.base_batch_size = 32;
  defaults.lr_scaling = LrScaling::kLinear;
  defaults.warmup_steps = 5;
  const auto plan = context->AgreePlan(defaults);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ToString(),
            "global batch 128 = micro 32 x accumulation 2 x world 2, learning rate 0.4, warm-up 5 "
            "steps");
}

TEST_F(ContextTest, PlanThatCannotBe_NamesTheNumbers) {
  GatewayOptions options;
  options.world_size = 4;
  const GatewayServer server(options);
  Join(server, "0");
  const auto context = Context::Create();
  PlanDefaults defaults;
  defaults.global_batch_size = 30;
  const auto plan = context->AgreePlan(defaults);
  EXPECT_THAT(TextOf(plan.status()), AllOf(HasSubstr("agreeing on the training plan"),
                                           HasSubstr("--global-batch-size=30 cannot be shared")));
}

TEST(CheckPlan, ThreeNumbersThatDoNotMultiplyOut_AreRefused) {
  const auto check = [](std::int64_t global, std::int64_t micro, std::int64_t accumulation,
                        std::int64_t world) {
    Plan plan;
    plan.world_size = world;
    plan.global_batch_size = global;
    plan.micro_batch_size = micro;
    plan.grad_accum_steps = accumulation;
    return internal::CheckPlan(plan, world).ok();
  };
  EXPECT_TRUE(check(48, 4, 3, 4));
  EXPECT_TRUE(check(31, 16, 2, 1)) << "16 + 15";
  EXPECT_TRUE(check(48, 4, 3, 5)) << "shares of 10 and 9: 4 + 3 + 3 and 3 + 3 + 3";
  EXPECT_FALSE(check(31, 15, 2, 1)) << "one sample has no place";
  EXPECT_FALSE(check(31, 17, 2, 1)) << "no need for so many at once";
  EXPECT_FALSE(check(31, 16, 3, 1)) << "a micro-step too many";
  EXPECT_FALSE(check(1, 1, 1000, 1));
  EXPECT_FALSE(check(48, 4, 0, 4));
  EXPECT_FALSE(check(48, -4, -3, 4));
  const std::int64_t huge = std::int64_t{1} << 62U;
  EXPECT_FALSE(check(huge, huge, huge, 2));
}

TEST(MaxMicroBatchSize, CapOrLesson_TheSmallerCounts) {
  plan::Request request;
  EXPECT_EQ(internal::MaxMicroBatchSize(request), 0);
  request.micro_batch_size = 4;  // a wish, not a cap
  EXPECT_EQ(internal::MaxMicroBatchSize(request), 0);
  request.learned_max_micro_batch_size = 8;
  EXPECT_EQ(internal::MaxMicroBatchSize(request), 8);
  request.max_micro_batch_size = 6;
  EXPECT_EQ(internal::MaxMicroBatchSize(request), 6);
  request.learned_max_micro_batch_size = 3;
  EXPECT_EQ(internal::MaxMicroBatchSize(request), 3);
}

TEST_F(ContextTest, PlanWithAHashOfItsOwn_IsRefused) {
  GatewayOptions options;
  options.wrong_hash = true;
  const GatewayServer server(options);
  Join(server, "0");
  const auto context = Context::Create();
  PlanDefaults defaults;
  defaults.global_batch_size = 32;
  const auto plan = context->AgreePlan(defaults);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(TextOf(plan.status()), HasSubstr("0123456789abcdef"));
}

TEST_F(ContextTest, Progress_ReachesTheAgent) {
  const GatewayServer server({});
  Join(server, "0");
  const auto context = Context::Create();
  EXPECT_TRUE(context->ReportProgress(17, 100, 1234.5).ok());
  EXPECT_EQ(server.reported_step(), 17);
}

TEST_F(ContextTest, ReportOfOutOfMemory_ReachesTheAgent) {
  const GatewayServer server({});
  Join(server, "0");
  const auto context = Context::Create();
  ASSERT_TRUE(context.ok());
  // Not UTF-8, and longer than the wire takes.
  const absl::Status error = OutOfMemory({}, std::string(100'000, '\xE4'));
  EXPECT_TRUE(context->ReportOutOfMemory(error, 8, 17).ok());
  EXPECT_EQ(server.exiting_reports(), 1);
  const absl::Status refused = context->ReportOutOfMemory(absl::InternalError("a bug"), 8, 17);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(refused), HasSubstr("a bug"));
}

TEST_F(ContextTest, WatchOfThePlan_EndsWithARevisionOrWhenItIsGivenUp) {
  const GatewayServer server({});
  Join(server, "0");
  const auto context = Context::Create();
  ASSERT_TRUE(context.ok());
  PlanDefaults defaults;
  defaults.global_batch_size = 32;
  ASSERT_TRUE(context->AgreePlan(defaults).ok());
  const auto gateway = internal::ContextAccess::GatewayOf(*context);
  std::thread other([&] {
    EXPECT_EQ(gateway->ReportOutOfMemory({32, 5, {}, "scripted", false})->revision, 1);
  });
  const auto revision = gateway->WatchPlan(0, std::stop_token());
  other.join();
  ASSERT_TRUE(revision.ok()) << revision.status();
  EXPECT_EQ(revision->revision, 1);
  EXPECT_EQ(revision->step, 5);
  EXPECT_EQ(revision->plan.micro_batch_size, 16);
  EXPECT_EQ(revision->plan.global_batch_size, 32);
  std::stop_source stop;
  std::thread giving_up([&] { stop.request_stop(); });
  EXPECT_EQ(gateway->WatchPlan(1, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
  giving_up.join();
}

}  // namespace
}  // namespace ddl
