// What is sent is what arrives; what is out of bounds is refused by name.
#include "agent/wire/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "agent/base/limits.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl::wire {
namespace {

using ::testing::HasSubstr;

const core::AgentRef kAgent{"job", "incarnation"};

// Over the wire and back.
template <typename T>
T Sent(const T& event) {
  auto result = EventFromWire(kAgent, ToWire(core::Event(event)));
  EXPECT_TRUE(result.ok()) << result.status();
  return std::get<T>(*result);
}
template <typename T>
absl::StatusOr<core::Message> Told(const T& message) {
  return MessageFromWire(ToWire(core::Message(message)));
}

core::WorkerFailure SomeFailure() {
  core::WorkerFailure failure;
  failure.rank = 5;
  failure.local_rank = 1;
  failure.pid = 4711;
  failure.host = "node1";
  failure.term_signal = 9;
  failure.wall_time_s = 1'700'000'000;
  failure.error_text = "boom";
  failure.error_file = "/tmp/error.json";
  failure.blames_peer = true;
  failure.hint = "look there";
  failure.out_of_memory = true;
  failure.micro_batch_size = 16;
  return failure;
}

plan::Request SomeRequest() {
  plan::Request request;
  request.global_batch_size = 64;
  request.max_micro_batch_size = 8;
  request.base_lr = 0.1;
  request.base_batch_size = 32;
  request.lr_scaling = plan::LrScaling::kSqrt;
  request.warmup_steps = 7;
  return request;
}

TEST(Hello, RoundTrip_KeepsEveryField) {
  core::AgentConnected hello;
  hello.agent = kAgent;
  hello.host = "node1";
  hello.address = "10.0.0.2";
  hello.nproc = 8;
  hello.node_rank = 3;
  hello.min_nodes = 2;
  hello.max_nodes = 4;
  hello.max_restarts = 5;
  hello.join_timeout = std::chrono::seconds(60);
  hello.stop_grace = std::chrono::milliseconds(1500);
  hello.plan = SomeRequest();
  hello.worker_ports = {1, 65'535};
  hello.last_plan = {SomeRequest(), 6};
  hello.last_plan.request.learned_max_micro_batch_size = 4;
  hello.last_plan.request.uneven_micro_steps = true;
  const auto got = HelloFromWire(ToWire(core::Event(hello)));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->agent, kAgent);
  EXPECT_EQ(got->host, "node1");
  EXPECT_EQ(got->address, "10.0.0.2");
  EXPECT_EQ(got->nproc, 8);
  EXPECT_EQ(got->node_rank, 3);
  EXPECT_EQ(got->min_nodes, 2);
  EXPECT_EQ(got->max_nodes, 4);
  EXPECT_EQ(got->max_restarts, 5);
  EXPECT_EQ(got->join_timeout, hello.join_timeout);
  EXPECT_EQ(got->stop_grace, hello.stop_grace);
  EXPECT_EQ(got->plan, SomeRequest());
  EXPECT_EQ(got->worker_ports, (std::vector<std::uint32_t>{1, 65'535}));
  EXPECT_EQ(got->last_plan, hello.last_plan);
}

TEST(HelloFromWire, WorkerPortsOutOfBounds_AreRefused) {
  core::AgentConnected hello;
  hello.worker_ports = {65'536};
  EXPECT_THAT(HelloFromWire(ToWire(core::Event(hello))).status().message(),
              HasSubstr("a worker port is 65536"));
  hello.worker_ports.assign(limits::kMaxWorkersPerNode + 1, 1);
  EXPECT_THAT(HelloFromWire(ToWire(core::Event(hello))).status().message(),
              HasSubstr("worker_ports has 1025"));
}

TEST(Events, RoundTrip_KeepsEveryField) {
  EXPECT_EQ(Sent(core::AgentHeard{kAgent, 4000}).master_port, 4000U);
  EXPECT_EQ(Sent(core::AgentLeft{kAgent, "done"}).why, "done");
  const auto failed =
      Sent(core::WorkerFailed{kAgent, 2, SomeFailure(), std::chrono::milliseconds(70)});
  EXPECT_EQ(failed.failure, SomeFailure());
  EXPECT_EQ(failed.age, std::chrono::milliseconds(70));
  EXPECT_EQ(Sent(core::WorkersSucceeded{kAgent, 3}).round, 3);
  EXPECT_EQ(Sent(core::RoundStopped{kAgent, 4}).round, 4);
  const auto written = Sent(core::KeyWritten{kAgent, 5, "k", std::string("\0v", 2)});
  EXPECT_EQ(written.key, "k");
  EXPECT_EQ(written.value, std::string("\0v", 2));
  EXPECT_EQ(Sent(core::KeyWanted{kAgent, 5, "k"}).key, "k");
  EXPECT_EQ(Sent(core::BarrierReached{kAgent, 5, "b"}).name, "b");
  EXPECT_EQ(Sent(core::PlanProposed{kAgent, 5, SomeRequest()}).request, SomeRequest());
  EXPECT_EQ(Sent(core::StopRequested{kAgent, 15}).signal, 15);
}

TEST(HelloFromWire, OtherFirstMessage_IsRefused) {
  EXPECT_THAT(HelloFromWire(ToWire(core::Event(core::AgentHeard{kAgent, 0}))).status().message(),
              HasSubstr("Hello"));
}

TEST(EventFromWire, HelloTwice_IsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      EventFromWire(kAgent, ToWire(core::Event(core::AgentConnected{}))).status()));
}

TEST(EventFromWire, OutOfBounds_NamesFieldAndLimit) {
  const auto refused = [](const core::Event& event) {
    return std::string(EventFromWire(kAgent, ToWire(event)).status().message());
  };
  const std::string long_key(limits::kMaxKeyBytes + 1, 'k');
  EXPECT_THAT(refused(core::KeyWanted{kAgent, 1, long_key}), HasSubstr("257 bytes"));
  EXPECT_THAT(refused(core::KeyWanted{kAgent, 1, ""}), HasSubstr("empty"));
  EXPECT_THAT(
      refused(core::KeyWritten{kAgent, 1, "k", std::string(limits::kMaxValueBytes + 1, 'v')}),
      HasSubstr("value"));
  EXPECT_THAT(refused(core::AgentLeft{kAgent, std::string(limits::kMaxTextBytes + 1, 'x')}),
              HasSubstr("reason"));
  EXPECT_THAT(refused(core::AgentHeard{kAgent, 65'536}), HasSubstr("master_port"));
  core::WorkerFailure failure = SomeFailure();
  failure.error_text.assign(limits::kMaxErrorTextBytes + 1, 'x');
  EXPECT_THAT(refused(core::WorkerFailed{kAgent, 1, failure}), HasSubstr("error_text"));
}

TEST(HelloFromWire, TimeoutOutOfBounds_IsRefused) {
  ddlaunch::v1::AgentMessage message;
  message.mutable_hello()->set_join_timeout_ms(-1);
  EXPECT_THAT(HelloFromWire(message).status().message(), HasSubstr("join_timeout_ms is -1"));
}

TEST(EventFromWire, UnknownKind_CountsAsHeard) {
  const auto event = EventFromWire(kAgent, ddlaunch::v1::AgentMessage());
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(std::holds_alternative<core::AgentHeard>(*event));
}

core::RoundStart SomeRound() {
  core::RoundStart start;
  start.round = 3;
  start.restart_count = 1;
  start.max_restarts = 2;
  start.node_rank = 1;
  start.first_rank = 2;
  start.nproc = 2;
  start.num_nodes = 2;
  start.world_size = 4;
  start.master_addr = "10.0.0.1";
  start.master_port = 4000;
  start.plan_request = SomeRequest();
  start.plan = plan::Solve(start.plan_request, 4).value();
  start.worker_addresses = std::make_shared<const std::vector<std::string>>(
      std::vector<std::string>{"10.0.0.1:1", "10.0.0.1:2", "[::2]:1", "[::2]:2"});
  start.first_worker_port = 1;
  return start;
}

TEST(RoundStart, RoundTrip_KeepsEveryField) {
  const auto got = Told(SomeRound());
  ASSERT_TRUE(got.ok()) << got.status();
  const auto& start = std::get<core::RoundStart>(*got);
  EXPECT_EQ(start.round, 3);
  EXPECT_EQ(start.restart_count, 1);
  EXPECT_EQ(start.max_restarts, 2);
  EXPECT_EQ(start.node_rank, 1);
  EXPECT_EQ(start.first_rank, 2);
  EXPECT_EQ(start.nproc, 2);
  EXPECT_EQ(start.num_nodes, 2);
  EXPECT_EQ(start.world_size, 4);
  EXPECT_EQ(start.master_addr, "10.0.0.1");
  EXPECT_EQ(start.master_port, 4000U);
  EXPECT_EQ(start.plan, SomeRound().plan);
  ASSERT_NE(start.worker_addresses, nullptr);
  EXPECT_EQ(*start.worker_addresses, *SomeRound().worker_addresses);
  EXPECT_EQ(start.first_worker_port, 1U);
}

TEST(RoundStart, NoWorkerAddresses_StayNone) {
  core::RoundStart start = SomeRound();
  start.worker_addresses = nullptr;
  EXPECT_EQ(std::get<core::RoundStart>(Told(start).value()).worker_addresses, nullptr);
}

TEST(RoundStart, WorkerAddressesOutOfBounds_AreRefused) {
  core::RoundStart start = SomeRound();
  start.first_worker_port = 65'536;
  EXPECT_THAT(Told(start).status().message(), HasSubstr("own port 65536"));
  start = SomeRound();
  start.worker_addresses = std::make_shared<const std::vector<std::string>>(3, "10.0.0.1:1");
  EXPECT_THAT(Told(start).status().message(), HasSubstr("3 entries for a world of 4"));
  start.worker_addresses = std::make_shared<const std::vector<std::string>>(
      4, std::string(limits::kMaxWorkerAddressesBytes / 4, 'h'));
  EXPECT_THAT(Told(start).status().message(), HasSubstr("the limit is 122880"));
}

TEST(RoundStart, PlanThisNodeDoesNotCompute_IsRefused) {
  core::RoundStart start = SomeRound();
  start.plan_request.global_batch_size = 128;
  EXPECT_THAT(Told(start).status().message(), HasSubstr("not what this node computes"));
}

TEST(RoundStart, HashOfOtherNumbers_IsRefused) {
  auto message = ToWire(core::Message(SomeRound()));
  message.mutable_round_start()->mutable_plan()->set_hash("0123456789abcdef");
  EXPECT_THAT(MessageFromWire(message).status().message(), HasSubstr("0123456789abcdef"));
}

TEST(RoundStart, RanksOutsideTheWorld_AreRefused) {
  core::RoundStart start = SomeRound();
  start.first_rank = 3;
  EXPECT_TRUE(absl::IsInvalidArgument(Told(start).status()));
}

TEST(Messages, RoundTrip_KeepsEveryField) {
  core::RoundStop stop{3, core::Reason::kWorkerFailed, "why", SomeFailure(), true};
  const auto got_stop = std::get<core::RoundStop>(Told(stop).value());
  EXPECT_EQ(got_stop.reason, core::Reason::kWorkerFailed);
  EXPECT_EQ(got_stop.root_cause, SomeFailure());
  EXPECT_TRUE(got_stop.will_restart);
  core::JobDone done{core::Reason::kRestartsExhausted, 139, "why", SomeFailure(), 2};
  const auto got_done = std::get<core::JobDone>(Told(done).value());
  EXPECT_EQ(got_done.exit_code, 139);
  EXPECT_EQ(got_done.restart_count, 2);
  EXPECT_EQ(got_done.root_cause, SomeFailure());
  const auto welcome = std::get<core::Welcome>(
      Told(core::Welcome{std::chrono::seconds(1), std::chrono::seconds(5), std::chrono::seconds(2)})
          .value());
  EXPECT_EQ(welcome.heartbeat_timeout, std::chrono::seconds(5));
  EXPECT_EQ(std::get<core::Waiting>(Told(core::Waiting{1, 2, "w"}).value()).nodes_needed, 2);
  EXPECT_EQ(
      std::get<core::Rejected>(Told(core::Rejected{core::Reason::kJobFull, "f"}).value()).text,
      "f");
  EXPECT_EQ(
      std::get<core::PlanReply>(Told(core::PlanReply{1, std::nullopt, "e", {}}).value()).error,
      "e");
}

TEST(Messages, PlanReply_IsWhatThisNodeComputesToo) {
  core::PlanReply reply;
  reply.round = 3;
  reply.plan_request.global_batch_size = 8;
  reply.plan = plan::Solve(reply.plan_request, 2).value();
  const auto got = std::get<core::PlanReply>(Told(reply).value());
  EXPECT_EQ(got.plan, reply.plan);
  EXPECT_EQ(got.plan_request, reply.plan_request);
  reply.plan_request.global_batch_size = 16;
  EXPECT_THAT(Told(reply).status().message(), HasSubstr("not what this node computes"));
}

TEST(Messages, PlanChanged_KeepsEveryField) {
  core::PlanChanged changed;
  changed.round = 3;
  changed.revision = 2;
  changed.plan_request.global_batch_size = 8;
  changed.plan_request.max_micro_batch_size = 2;
  changed.plan = plan::Solve(changed.plan_request, 2).value();
  changed.step = 7;
  changed.text = "why";
  changed.rank = 1;
  const auto got = std::get<core::PlanChanged>(Told(changed).value());
  EXPECT_EQ(got.round, 3);
  EXPECT_EQ(got.revision, 2);
  EXPECT_EQ(got.plan, changed.plan);
  EXPECT_EQ(got.plan_request, changed.plan_request);
  EXPECT_EQ(got.step, 7);
  EXPECT_EQ(got.text, "why");
  EXPECT_EQ(got.rank, 1);
  changed.plan.reset();
  EXPECT_TRUE(absl::IsInvalidArgument(Told(changed).status())) << "neither plan nor error";
  changed.error = "at the floor";
  EXPECT_EQ(std::get<core::PlanChanged>(Told(changed).value()).error, "at the floor");
}

TEST(Messages, PlanChangedWithAnotherHash_IsRefused) {
  ddlaunch::v1::CoordinatorMessage message;
  message.mutable_plan_changed()->mutable_plan()->set_world_size(2);
  EXPECT_TRUE(absl::IsInvalidArgument(MessageFromWire(message).status()));
}

TEST(Events, OutOfMemory_KeepsEveryField) {
  const core::OutOfMemory report{kAgent, 3, 5, 8, 120, "asked for 2 GiB"};
  const auto got =
      std::get<core::OutOfMemory>(EventFromWire(kAgent, ToWire(core::Event(report))).value());
  EXPECT_EQ(got.round, 3);
  EXPECT_EQ(got.rank, 5);
  EXPECT_EQ(got.micro_batch_size, 8);
  EXPECT_EQ(got.step, 120);
  EXPECT_EQ(got.text, "asked for 2 GiB");
  core::OutOfMemory endless = report;
  endless.text.assign(limits::kMaxTextBytes + 1, 'x');
  EXPECT_TRUE(
      absl::IsInvalidArgument(EventFromWire(kAgent, ToWire(core::Event(endless))).status()));
}

// Found by wire_fuzz: milliseconds that overflow as nanoseconds.
TEST(MessageFromWire, WelcomeWithAbsurdTimes_IsRefused) {
  for (const std::int64_t ms : {std::int64_t{-1}, std::int64_t{6'362'189'045'330'715'504}}) {
    ddlaunch::v1::CoordinatorMessage message;
    message.mutable_welcome()->set_reconnect_grace_ms(ms);
    EXPECT_EQ(MessageFromWire(message).status().code(), absl::StatusCode::kInvalidArgument) << ms;
  }
}

}  // namespace
}  // namespace ddl::wire
