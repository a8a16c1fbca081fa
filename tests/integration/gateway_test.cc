// Workers' calls at the gateway of two nodes, with a real coordinator behind.
#include "launcher/gateway/gateway.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "ddlaunch/v1/worker_gateway.grpc.pb.h"
#include "tests/support/test_agent.h"

namespace ddl {
namespace {

using ::testing::HasSubstr;

// One node without its workers: client and gateway, in a loop of their own.
class TestNode {
 public:
  TestNode(std::uint16_t port, const core::AgentConnected& hello) : agent_(port, hello) {
    auto gateway = Gateway::Start(
        "job", hello.host, [this](const core::Event& event) { agent_.client().Send(event); });
    EXPECT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    agent_.on_message = [this](const core::Message& message) { OnMessage(message); };
    agent_.each_turn = [this] { gateway_->OnReady(MonotonicNow()); };
    thread_ = std::thread([this] { agent_.RunUntil([this] { return stop_.load(); }); });
    started_.get_future().wait();
  }
  ~TestNode() { Stop(); }

  [[nodiscard]] const Gateway& gateway() const { return *gateway_; }
  // Ends the loop, so that the gateway can be looked at.
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  [[nodiscard]] std::unique_ptr<ddlaunch::v1::WorkerGateway::Stub> NewStub() const {
    return ddlaunch::v1::WorkerGateway::NewStub(
        grpc::CreateChannel(gateway_->target(), grpc::InsecureChannelCredentials()));
  }

 private:
  void OnMessage(const core::Message& message) {
    if (const auto* start = std::get_if<core::RoundStart>(&message)) {
      gateway_->BeginRound(*start, "127.0.0.1");
      started_.set_value();
    } else if (const auto* value = std::get_if<core::KeyValue>(&message)) {
      gateway_->OnMessage(*value);
    } else if (const auto* done = std::get_if<core::BarrierDone>(&message)) {
      gateway_->OnMessage(*done);
    } else if (const auto* reply = std::get_if<core::PlanReply>(&message)) {
      gateway_->OnMessage(*reply);
    } else if (const auto* changed = std::get_if<core::PlanChanged>(&message)) {
      gateway_->OnMessage(*changed);
    }
  }

  TestAgent agent_;
  std::unique_ptr<Gateway> gateway_;
  std::promise<void> started_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

core::AgentConnected Pinned(core::AgentConnected hello, std::int32_t node_rank) {
  hello.node_rank = node_rank;
  return hello;
}

// Both nodes at once: a round starts only when both have joined.
struct TwoNodes {
  std::unique_ptr<Coordinator> coordinator = StartCoordinator();
  std::unique_ptr<TestNode> a, b;
  TwoNodes() {
    std::thread other([this] {
      b = std::make_unique<TestNode>(coordinator->port(), Pinned(SomeHello("b", 2, 1), 1));
    });
    a = std::make_unique<TestNode>(coordinator->port(), Pinned(SomeHello("a", 2, 2), 0));
    other.join();
  }
};

constexpr std::int64_t kRound = 1;

void SetDeadline(grpc::ClientContext* context, Duration timeout = std::chrono::seconds(20)) {
  context->set_deadline(std::chrono::system_clock::now() + timeout);
}

template <typename Stub>
grpc::Status Publish(Stub& stub, const std::string& key, const std::string& value) {
  grpc::ClientContext context;
  SetDeadline(&context);
  ddlaunch::v1::PublishRequest request;
  request.set_round(kRound);
  request.set_key(key);
  request.set_value(value);
  ddlaunch::v1::PublishResponse response;
  return stub.Publish(&context, request, &response);
}

template <typename Stub>
std::pair<grpc::Status, std::string> Fetch(Stub& stub, const std::string& key,
                                           std::int64_t round = kRound,
                                           Duration timeout = std::chrono::seconds(20)) {
  grpc::ClientContext context;
  SetDeadline(&context, timeout);
  ddlaunch::v1::FetchRequest request;
  request.set_round(round);
  request.set_key(key);
  ddlaunch::v1::FetchResponse response;
  const grpc::Status status = stub.Fetch(&context, request, &response);
  return {status, response.value()};
}

template <typename Stub>
grpc::Status Barrier(Stub& stub, std::int32_t local_rank, Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(&context, timeout);
  ddlaunch::v1::BarrierRequest request;
  request.set_round(kRound);
  request.set_name("b");
  request.set_local_rank(local_rank);
  ddlaunch::v1::BarrierResponse response;
  return stub.Barrier(&context, request, &response);
}

TEST(Gateway, Directory_IsPrivateAndRemoved) {
  std::string directory;
  {
    const auto gateway = Gateway::Start("job", "a", [](const core::Event&) {}).value();
    directory = gateway->directory();
    struct stat info {};
    ASSERT_EQ(::stat(directory.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U);
  }
  struct stat info {};
  EXPECT_NE(::stat(directory.c_str(), &info), 0);
}

TEST(Gateway, FetchBeforePublish_WaitsForTheOtherNode) {
  const TwoNodes nodes;
  const auto stub_a = nodes.a->NewStub();
  const auto stub_b = nodes.b->NewStub();
  auto fetched = std::async(std::launch::async, [&] { return Fetch(*stub_b, "id"); });
  EXPECT_TRUE(Publish(*stub_a, "id", "128 bytes").ok());
  const auto [status, value] = fetched.get();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(value, "128 bytes");
}

TEST(Gateway, PublishTwice_SameValueFineOtherRefused) {
  const TwoNodes nodes;
  const auto stub_a = nodes.a->NewStub();
  const auto stub_b = nodes.b->NewStub();
  EXPECT_TRUE(Publish(*stub_a, "k", "v").ok());
  EXPECT_TRUE(Publish(*stub_b, "k", "v").ok());
  EXPECT_EQ(Publish(*stub_b, "k", "w").error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Publish(*stub_b, "", "w").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Gateway, FetchNobodyPublishes_DeadlineNamesTheKey) {
  const TwoNodes nodes;
  const auto stub = nodes.a->NewStub();
  const auto [status, value] = Fetch(*stub, "never", kRound, std::chrono::milliseconds(600));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("\"never\""));
}

TEST(Gateway, OtherRound_IsAborted) {
  const TwoNodes nodes;
  const auto stub = nodes.a->NewStub();
  EXPECT_EQ(Fetch(*stub, "k", kRound + 1).first.error_code(), grpc::StatusCode::ABORTED);
}

TEST(Gateway, BarrierOfAllRanks_OpensForAll) {
  const TwoNodes nodes;
  const auto stub_a = nodes.a->NewStub();
  const auto stub_b = nodes.b->NewStub();
  const auto enter = [](auto& stub, std::int32_t local_rank) {
    return std::async(std::launch::async, [&stub, local_rank] {
      return Barrier(*stub, local_rank, std::chrono::seconds(20));
    });
  };
  auto rank0 = enter(stub_a, 0);
  auto rank1 = enter(stub_a, 1);
  auto rank2 = enter(stub_b, 0);
  EXPECT_TRUE(rank0.get().ok());
  EXPECT_TRUE(rank1.get().ok());
  EXPECT_TRUE(rank2.get().ok());
}

TEST(Gateway, BarrierWithARankMissing_DeadlineNamesIt) {
  const TwoNodes nodes;
  const auto stub = nodes.a->NewStub();
  const grpc::Status status = Barrier(*stub, 0, std::chrono::milliseconds(600));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("waiting for rank 1 on a"));
}

TEST(Gateway, Register_TellsThePlaceOrRefusesTheRank) {
  const TwoNodes nodes;
  const auto stub = nodes.b->NewStub();
  ddlaunch::v1::RegisterRequest request;
  request.set_round(kRound);
  ddlaunch::v1::RegisterResponse response;
  grpc::ClientContext context;
  SetDeadline(&context);
  ASSERT_TRUE(stub->Register(&context, request, &response).ok());
  EXPECT_EQ(response.world_size(), 3);
  EXPECT_EQ(response.num_nodes(), 2);
  request.set_local_rank(7);
  grpc::ClientContext second_context;
  SetDeadline(&second_context);
  EXPECT_EQ(stub->Register(&second_context, request, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

template <typename Stub>
grpc::Status AgreePlan(Stub& stub, std::int32_t local_rank, std::int64_t global,
                       ddlaunch::v1::AgreePlanResponse* response) {
  grpc::ClientContext context;
  SetDeadline(&context);
  ddlaunch::v1::AgreePlanRequest request;
  request.set_round(kRound);
  request.set_local_rank(local_rank);
  request.mutable_defaults()->set_global_batch_size(global);
  return stub.AgreePlan(&context, request, response);
}

TEST(Gateway, PlanOfAllRanks_IsOneWithOneHash) {
  const TwoNodes nodes;
  ddlaunch::v1::AgreePlanResponse on_a;
  ddlaunch::v1::AgreePlanResponse on_b;
  ASSERT_TRUE(AgreePlan(*nodes.a->NewStub(), 0, 48, &on_a).ok());
  ASSERT_TRUE(AgreePlan(*nodes.b->NewStub(), 0, 48, &on_b).ok());
  EXPECT_EQ(on_a.plan().micro_batch_size(), 16);
  EXPECT_EQ(on_a.plan().hash(), on_b.plan().hash());
  EXPECT_EQ(on_a.request().global_batch_size(), 48);
  EXPECT_FALSE(on_a.request().has_learned_max_micro_batch_size());
}

TEST(Gateway, PlansOfRanksDiffer_BothAreNamed) {
  const TwoNodes nodes;
  ddlaunch::v1::AgreePlanResponse response;
  ASSERT_TRUE(AgreePlan(*nodes.a->NewStub(), 0, 48, &response).ok());
  const grpc::Status same_node = AgreePlan(*nodes.a->NewStub(), 1, 96, &response);
  EXPECT_EQ(same_node.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(same_node.error_message(), HasSubstr("48"));
  EXPECT_THAT(same_node.error_message(), HasSubstr("96"));
  const grpc::Status other_node = AgreePlan(*nodes.b->NewStub(), 0, 96, &response);
  EXPECT_EQ(other_node.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(other_node.error_message(), HasSubstr("96"));
}

// ---- out of memory ------------------------------------------------------------

using ddlaunch::v1::PlanRevision;

template <typename Stub>
std::pair<grpc::Status, PlanRevision> ReportOutOfMemory(Stub& stub, std::int32_t local_rank,
                                                        std::int64_t micro, bool exiting = false) {
  grpc::ClientContext context;
  SetDeadline(&context);
  ddlaunch::v1::ReportOutOfMemoryRequest request;
  request.set_round(kRound);
  request.set_local_rank(local_rank);
  request.set_micro_batch_size(micro);
  request.set_step(9);
  request.set_exiting(exiting);
  request.mutable_memory()->set_asked_bytes(std::int64_t{2} << 30U);
  PlanRevision response;
  const grpc::Status status = stub.ReportOutOfMemory(&context, request, &response);
  return {status, response};
}

template <typename Stub>
std::pair<grpc::Status, PlanRevision> WatchPlan(Stub& stub, std::int32_t local_rank,
                                                std::int32_t after_revision,
                                                Duration timeout = std::chrono::seconds(20)) {
  grpc::ClientContext context;
  SetDeadline(&context, timeout);
  ddlaunch::v1::WatchPlanRequest request;
  request.set_round(kRound);
  request.set_local_rank(local_rank);
  request.set_after_revision(after_revision);
  PlanRevision response;
  const grpc::Status status = stub.WatchPlan(&context, request, &response);
  return {status, response};
}

TEST(Gateway, OutOfMemoryOnOneRank_TheOthersHearOfItByTheirWatch) {
  const TwoNodes nodes;
  const auto stub_a = nodes.a->NewStub();
  const auto stub_b = nodes.b->NewStub();
  ddlaunch::v1::AgreePlanResponse agreed;
  ASSERT_TRUE(AgreePlan(*stub_a, 0, 48, &agreed).ok());
  ASSERT_EQ(agreed.plan().micro_batch_size(), 16);
  auto watch = std::async(std::launch::async, [&] { return WatchPlan(*stub_b, 0, 0); });
  const auto [status, revision] = ReportOutOfMemory(*stub_a, 1, 16);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(revision.revision(), 1);
  EXPECT_EQ(revision.step(), 9);
  EXPECT_EQ(revision.plan().micro_batch_size(), 8);
  EXPECT_EQ(revision.plan().grad_accum_steps(), 2);
  EXPECT_THAT(revision.text(), HasSubstr("2.0 GiB asked for"));
  const auto [watch_status, heard] = watch.get();
  ASSERT_TRUE(watch_status.ok()) << watch_status.error_message();
  EXPECT_EQ(heard.revision(), 1);
  EXPECT_EQ(heard.plan().hash(), revision.plan().hash());
  // From memory, now: a peer that failed in the same step, a rank that looks late,
  // one that agrees late.
  EXPECT_EQ(ReportOutOfMemory(*stub_b, 0, 16).second.revision(), 1);
  EXPECT_EQ(WatchPlan(*stub_a, 0, 0).second.revision(), 1);
  ASSERT_TRUE(AgreePlan(*stub_a, 1, 48, &agreed).ok());
  EXPECT_EQ(agreed.plan().hash(), revision.plan().hash());
  EXPECT_EQ(agreed.request().learned_max_micro_batch_size(), 8);
  ASSERT_TRUE(AgreePlan(*stub_b, 0, 48, &agreed).ok());
  EXPECT_EQ(agreed.plan().hash(), revision.plan().hash());
}

TEST(Gateway, WatchPlanAndNothingChanges_EndsWithItsDeadline) {
  const TwoNodes nodes;
  const auto [status, revision] =
      WatchPlan(*nodes.a->NewStub(), 0, 0, std::chrono::milliseconds(600));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("the plan has not changed"));
}

TEST(Gateway, WatchPlanAgain_EndsTheCallBeforeOfThatRankOnly) {
  const TwoNodes nodes;
  const auto stub = nodes.a->NewStub();
  ddlaunch::v1::AgreePlanResponse agreed;
  ASSERT_TRUE(AgreePlan(*stub, 0, 48, &agreed).ok());
  // Of the first two, whichever comes second ends the other.
  std::atomic<bool> is_first = true;
  std::promise<grpc::Status> replaced;
  const auto watch = [&] {
    const grpc::Status status = WatchPlan(*stub, 1, 0).first;
    if (is_first.exchange(false)) {
      replaced.set_value(status);
    }
    return status.ok();
  };
  auto other_rank = std::async(std::launch::async, [&] { return WatchPlan(*stub, 0, 0).first; });
  auto one = std::async(std::launch::async, watch);
  auto other = std::async(std::launch::async, watch);
  const grpc::Status status = replaced.get_future().get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("local rank 1 has called again"));
  ASSERT_TRUE(ReportOutOfMemory(*stub, 0, 16).first.ok());
  EXPECT_NE(one.get(), other.get());
  EXPECT_TRUE(other_rank.get().ok());
}

TEST(Gateway, OutOfMemoryWithoutAPlan_IsRefusedAndNotHeldAgainstTheRank) {
  const TwoNodes nodes;
  const auto [status, revision] = ReportOutOfMemory(*nodes.a->NewStub(), 1, 16);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--global-batch-size"));
  nodes.a->Stop();
  EXPECT_FALSE(nodes.a->gateway().out_of_memory(1).has_value());
}

TEST(Gateway, OutOfMemoryOfAWorkerThatExits_IsAnsweredAtOnceAndRemembered) {
  const TwoNodes nodes;
  EXPECT_TRUE(ReportOutOfMemory(*nodes.a->NewStub(), 1, 0, /*exiting=*/true).first.ok());
  nodes.a->Stop();
  EXPECT_TRUE(nodes.a->gateway().out_of_memory(1).has_value());
  EXPECT_FALSE(nodes.a->gateway().out_of_memory(0).has_value());
}

TEST(Gateway, OutOfMemoryReportThatCannotBe_IsRefused) {
  const TwoNodes nodes;
  const auto stub = nodes.a->NewStub();
  EXPECT_EQ(ReportOutOfMemory(*stub, 0, 0).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReportOutOfMemory(*stub, 7, 16).first.error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(WatchPlan(*stub, 0, -1).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A gateway whose coordinator is the test itself, driven by its thread.
class LoneGateway {
 public:
  LoneGateway() {
    gateway_ = Gateway::Start("job", "a", [this](const core::Event& event) {
                 sent_.push_back(event);
               }).value();
    core::RoundStart start;
    start.round = kRound;
    start.first_rank = 2;
    start.nproc = 2;
    start.num_nodes = 2;
    start.world_size = 4;
    gateway_->BeginRound(start, "127.0.0.1");
  }
  Gateway& gateway() { return *gateway_; }
  std::vector<core::Event>& sent() { return sent_; }
  [[nodiscard]] std::unique_ptr<ddlaunch::v1::WorkerGateway::Stub> NewStub() const {
    return ddlaunch::v1::WorkerGateway::NewStub(
        grpc::CreateChannel(gateway_->target(), grpc::InsecureChannelCredentials()));
  }
  // Takes calls until the condition holds; fails when it does not come to.
  void RunUntil(const std::function<bool()>& done) {
    const Instant give_up = MonotonicNow() + std::chrono::seconds(20);
    while (!done()) {
      ASSERT_LT(MonotonicNow(), give_up);
      pollfd fd{gateway_->poll_fd(), POLLIN, 0};
      constexpr int kStepMs = 10;
      ::poll(&fd, 1, kStepMs);
      gateway_->OnReady(MonotonicNow());
    }
  }
  template <typename T>
  void Answer(std::future<T>& call) {
    RunUntil(
        [&call] { return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  }

 private:
  std::vector<core::Event> sent_;
  std::unique_ptr<Gateway> gateway_;
};

TEST(Gateway, OutOfMemoryReport_IsSaidAgainAfterAReconnectAndThenAnswered) {
  LoneGateway lone;
  const auto stub = lone.NewStub();
  auto call = std::async(std::launch::async, [&] { return ReportOutOfMemory(*stub, 1, 16); });
  lone.RunUntil([&] { return lone.sent().size() == 1; });
  lone.gateway().Resend();
  ASSERT_EQ(lone.sent().size(), 2);
  for (const core::Event& event : lone.sent()) {
    const auto* const report = std::get_if<core::OutOfMemory>(&event);
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->rank, 3);
    EXPECT_EQ(report->micro_batch_size, 16);
    EXPECT_EQ(report->step, 9);
  }
  core::PlanChanged changed;
  changed.round = kRound;
  changed.revision = 1;
  changed.plan.emplace();
  changed.plan->micro_batch_size = 8;
  lone.gateway().OnMessage(changed);
  lone.Answer(call);
  EXPECT_EQ(call.get().second.revision(), 1);
  lone.gateway().Resend();
  EXPECT_EQ(lone.sent().size(), 2) << "nothing is open any more";
  EXPECT_FALSE(lone.gateway().out_of_memory(1).has_value());
}

TEST(Gateway, OutOfMemoryRefused_OnlyThatRankIsAnswered) {
  LoneGateway lone;
  const auto stub = lone.NewStub();
  auto first = std::async(std::launch::async, [&] { return ReportOutOfMemory(*stub, 0, 1); });
  auto second = std::async(std::launch::async, [&] { return ReportOutOfMemory(*stub, 1, 1); });
  lone.RunUntil([&] { return lone.sent().size() == 2; });
  core::PlanChanged refused;
  refused.round = kRound;
  refused.rank = 3;
  refused.error = "at the floor";
  lone.gateway().OnMessage(refused);
  lone.Answer(second);
  EXPECT_EQ(second.get().first.error_message(), "at the floor");
  EXPECT_FALSE(lone.gateway().out_of_memory(1).has_value()) << "it may find another way";
  lone.gateway().EndRound("over");
  lone.Answer(first);
  EXPECT_EQ(first.get().first.error_code(), grpc::StatusCode::ABORTED);
}

TEST(Gateway, RoundEnds_WatchersOfThePlanAreAborted) {
  LoneGateway lone;
  const auto stub = lone.NewStub();
  auto watch = std::async(std::launch::async, [&] { return WatchPlan(*stub, 0, 0); });
  lone.RunUntil([&] { return lone.gateway().deadline().has_value(); });
  lone.gateway().EndRound("over");
  lone.Answer(watch);
  EXPECT_EQ(watch.get().first.error_code(), grpc::StatusCode::ABORTED);
}

// gRPC tells the server how long a call may take, in so few digits that 1005 s becomes
// 1010: the answer must come before the caller gives up all the same.
TEST(Gateway, LongDeadline_IsAnsweredBeforeTheCallerGivesUp) {
  LoneGateway lone;
  const auto stub = lone.NewStub();
  constexpr Duration kTimeout = std::chrono::seconds(1005);
  const Instant gives_up = MonotonicNow() + kTimeout;
  auto call = std::async(std::launch::async, [&] { return Barrier(*stub, 0, kTimeout); });
  lone.RunUntil([&] { return lone.gateway().deadline().has_value(); });
  EXPECT_LT(*lone.gateway().deadline(), gives_up);
  lone.gateway().EndRound("over");
  lone.Answer(call);
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::ABORTED);
}

TEST(Gateway, WorkerThatExitsForLackOfMemory_IsRememberedWithItsNumbers) {
  LoneGateway lone;
  const auto stub = lone.NewStub();
  auto call = std::async(std::launch::async,
                         [&] { return ReportOutOfMemory(*stub, 1, 16, /*exiting=*/true); });
  lone.Answer(call);
  EXPECT_TRUE(call.get().first.ok());
  ASSERT_TRUE(lone.gateway().out_of_memory(1).has_value());
  EXPECT_EQ(lone.gateway().out_of_memory(1)->memory.asked_bytes, std::int64_t{2} << 30U);
  EXPECT_EQ(lone.gateway().out_of_memory(1)->micro_batch_size, 16);
  EXPECT_TRUE(lone.sent().empty()) << "its end will say it";
  lone.gateway().EndRound("over");
  EXPECT_TRUE(lone.gateway().out_of_memory(1).has_value()) << "it may end after the round";
}

}  // namespace
}  // namespace ddl
