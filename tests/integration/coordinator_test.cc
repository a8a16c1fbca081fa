// Agents and a coordinator over real gRPC on loopback.
#include "agent/service/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/test_agent.h"

namespace ddl {
namespace {

using ::testing::HasSubstr;

TEST(Coordinator, TwoAgentsJoin_RanksAreContiguousAndMasterIsNodeZero) {
  const auto coordinator = StartCoordinator();
  TestAgent first(coordinator->port(), SomeHello("a", 2, 3));
  ASSERT_TRUE(first.WaitFor<core::Welcome>().has_value());
  TestAgent second(coordinator->port(), SomeHello("b", 2, 1));
  const auto start0 = first.WaitFor<core::RoundStart>();
  const auto start1 = second.WaitFor<core::RoundStart>();
  ASSERT_TRUE(start0.has_value() && start1.has_value());
  EXPECT_EQ(start0->node_rank, 0);
  EXPECT_EQ(start1->node_rank, 1);
  EXPECT_EQ(start0->first_rank, 0);
  EXPECT_EQ(start1->first_rank, 3);
  EXPECT_EQ(start1->world_size, 4);
  EXPECT_EQ(start1->master_port, kMasterPort);
  EXPECT_EQ(start1->master_addr, "127.0.0.1");
}

TEST(Coordinator, WorkerFails_EveryAgentIsToldAndRestartsTogether) {
  const auto coordinator = StartCoordinator();
  auto hello0 = SomeHello("a");
  auto hello1 = SomeHello("b");
  hello0.max_restarts = hello1.max_restarts = 1;
  TestAgent first(coordinator->port(), hello0);
  TestAgent second(coordinator->port(), hello1);
  const auto start = first.WaitFor<core::RoundStart>();
  ASSERT_TRUE(start.has_value());
  second.WaitFor<core::RoundStart>();

  core::WorkerFailure failure;
  failure.rank = 1;
  failure.host = "a";
  failure.exit_code = 3;
  first.client().Send(core::WorkerFailed{{}, start->round, failure});
  const auto stop = second.WaitFor<core::RoundStop>();
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->reason, core::Reason::kWorkerFailed);
  EXPECT_EQ(stop->root_cause->exit_code, 3);
  EXPECT_TRUE(stop->will_restart);
  first.WaitFor<core::RoundStop>();

  first.client().Send(core::RoundStopped{{}, start->round});
  second.client().Send(core::RoundStopped{{}, start->round});
  const auto again0 = first.WaitFor<core::RoundStart>();
  const auto again1 = second.WaitFor<core::RoundStart>();
  ASSERT_TRUE(again0.has_value() && again1.has_value());
  EXPECT_EQ(again0->restart_count, 1);
  EXPECT_EQ(again1->restart_count, 1);
  EXPECT_GT(again1->round, start->round);

  first.client().Send(core::WorkersSucceeded{{}, again0->round});
  second.client().Send(core::WorkersSucceeded{{}, again0->round});
  EXPECT_EQ(first.WaitFor<core::JobDone>()->exit_code, 0);
  EXPECT_EQ(second.WaitFor<core::JobDone>()->exit_code, 0);
  first.client().Leave("done");
  second.client().Leave("done");
  first.RunUntil([&] { return first.client().closed(); });
  second.RunUntil([&] { return second.client().closed(); });
  EXPECT_TRUE(coordinator->WaitUntilIdle(std::chrono::seconds(20)));
}

TEST(Coordinator, AgentVanishes_TheOtherIsToldAfterTheGrace) {
  core::Options options;
  options.reconnect_grace = std::chrono::milliseconds(50);
  const auto coordinator = StartCoordinator(options);
  TestAgent first(coordinator->port(), SomeHello("a"));
  auto second = std::make_unique<TestAgent>(coordinator->port(), SomeHello("b"));
  ASSERT_TRUE(first.WaitFor<core::RoundStart>().has_value());
  second.reset();
  const auto stop = first.WaitFor<core::RoundStop>();
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->reason, core::Reason::kNodeLost);
  EXPECT_THAT(stop->text, HasSubstr("b"));
}

TEST(Coordinator, KeysAndPlan_CrossNodes) {
  const auto coordinator = StartCoordinator();
  TestAgent first(coordinator->port(), SomeHello("a"));
  TestAgent second(coordinator->port(), SomeHello("b"));
  const auto start = first.WaitFor<core::RoundStart>();
  second.WaitFor<core::RoundStart>();
  second.client().Send(core::KeyWanted{{}, start->round, "k"});
  first.client().Send(core::KeyWritten{{}, start->round, "k", "v"});
  EXPECT_EQ(second.WaitFor<core::KeyValue>()->value, "v");
  EXPECT_EQ(first.WaitFor<core::KeyValue>()->value, "v") << "a writer is told what holds";
  second.client().Send(core::KeyWritten{{}, start->round, "k", "other"});
  EXPECT_EQ(second.WaitFor<core::KeyValue>()->value, "v") << "the first writer wins";

  plan::Request request;
  request.global_batch_size = 32;
  first.client().Send(core::PlanProposed{{}, start->round, request});
  second.client().Send(core::PlanProposed{{}, start->round, request});
  const auto reply = second.WaitFor<core::PlanReply>();
  ASSERT_TRUE(reply.has_value() && reply->plan.has_value());
  EXPECT_EQ(reply->plan->micro_batch_size, 8);
}

TEST(Coordinator, Destroyed_AgentsGiveUpWithinTheirTimeout) {
  core::Options options;
  options.heartbeat_timeout = std::chrono::milliseconds(300);
  auto coordinator = StartCoordinator(options);
  TestAgent agent(coordinator->port(), SomeHello("a", 1));
  ASSERT_TRUE(agent.WaitFor<core::RoundStart>().has_value());
  coordinator.reset();
  const auto lost = agent.WaitFor<ClientLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_THAT(std::string(lost->status.message()), HasSubstr("lost the coordinator"));
}

TEST(Coordinator, NobodyThere_AgentSaysSoAfterItsJoinTimeout) {
  auto hello = SomeHello("a");
  hello.join_timeout = std::chrono::milliseconds(500);
  std::uint16_t port = 0;
  { port = StartCoordinator()->port(); }  // free again
  TestAgent agent(port, hello);
  const auto lost = agent.WaitFor<ClientLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_THAT(std::string(lost->status.message()), HasSubstr("could not reach a coordinator"));
}

TEST(Coordinator, PortTaken_IsAlreadyExists) {
  const auto coordinator = StartCoordinator();
  Coordinator::Options options;
  options.listen_port = coordinator->port();
  const auto second = Coordinator::Start(options, std::make_unique<store::MemoryStore>());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
}

}  // namespace
}  // namespace ddl
