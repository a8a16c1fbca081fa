// What an agent says: AgentMessage to and from the core's events.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/base/check.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/wire/wire.h"
#include "agent/wire/worker_failure_wire.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl::wire {
namespace {

using ddlaunch::v1::AgentMessage;

std::int64_t Milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

absl::Status CheckKey(const std::string& key) {
  if (key.empty()) {
    return absl::InvalidArgumentError("a key is empty");
  }
  return CheckSize("key", key, limits::kMaxKeyBytes);
}

absl::Status CheckPort(const char* field, std::uint32_t port) {
  if (port > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", port, "; the limit is ", UINT16_MAX));
  }
  return absl::OkStatus();
}

// core::Event to AgentMessage, by kind.
struct ToAgentMessage {
  AgentMessage& out;

  void operator()(const core::AgentConnected& event) const {
    auto& hello = *out.mutable_hello();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_job_id(event.agent.job_id);
    hello.set_incarnation(event.agent.incarnation);
    hello.set_host(event.host);
    hello.set_address(event.address);
    hello.set_nproc(event.nproc);
    if (event.node_rank.has_value()) {
      hello.set_node_rank(*event.node_rank);
    }
    hello.set_min_nodes(event.min_nodes);
    hello.set_max_nodes(event.max_nodes);
    hello.set_max_restarts(event.max_restarts);
    hello.set_join_timeout_ms(Milliseconds(event.join_timeout));
    hello.set_last_call_timeout_ms(Milliseconds(event.last_call_timeout));
    hello.set_stop_grace_ms(Milliseconds(event.stop_grace));
    *hello.mutable_plan() = ToWire(event.plan);
    hello.set_master_port(event.master_port);
    hello.set_last_round(event.last_round);
    hello.set_restart_count(event.restart_count);
    *hello.mutable_last_plan_request() = ToWire(event.last_plan.request);
    hello.set_last_plan_world_size(event.last_plan.world_size);
    hello.mutable_worker_ports()->Assign(event.worker_ports.begin(), event.worker_ports.end());
  }
  void operator()(const core::AgentHeard& event) const {
    out.mutable_heartbeat()->set_master_port(event.master_port);
  }
  void operator()(const core::AgentLeft& event) const {
    out.mutable_leave()->set_reason(event.why);
  }
  void operator()(const core::WorkerFailed& event) const {
    auto& failed = *out.mutable_worker_failed();
    failed.set_round(event.round);
    *failed.mutable_failure() = FailureToWire(event.failure);
    failed.set_age_ms(Milliseconds(event.age));
  }
  void operator()(const core::WorkersSucceeded& event) const {
    out.mutable_workers_succeeded()->set_round(event.round);
  }
  void operator()(const core::RoundStopped& event) const {
    out.mutable_round_stopped()->set_round(event.round);
  }
  void operator()(const core::KeyWritten& event) const {
    auto& put = *out.mutable_put_key();
    put.set_round(event.round);
    put.set_key(event.key);
    put.set_value(event.value);
  }
  void operator()(const core::KeyWanted& event) const {
    auto& get = *out.mutable_get_key();
    get.set_round(event.round);
    get.set_key(event.key);
  }
  void operator()(const core::BarrierReached& event) const {
    auto& barrier = *out.mutable_barrier_reached();
    barrier.set_round(event.round);
    barrier.set_name(event.name);
  }
  void operator()(const core::PlanProposed& event) const {
    auto& propose = *out.mutable_propose_plan();
    propose.set_round(event.round);
    *propose.mutable_request() = ToWire(event.request);
  }
  void operator()(const core::OutOfMemory& event) const {
    auto& report = *out.mutable_out_of_memory();
    report.set_round(event.round);
    report.set_rank(event.rank);
    report.set_micro_batch_size(event.micro_batch_size);
    report.set_step(event.step);
    report.set_text(event.text);
  }
  void operator()(const core::StopRequested& event) const {
    out.mutable_stop_job()->set_signal(event.signal);
    out.mutable_stop_job()->set_this_node_only(event.node_only);
  }
  // Never sent by an agent: our own mistake.
  void operator()(const core::AgentDisconnected& /*event*/) const { DDL_CHECK(false); }
  void operator()(const core::TimerFired& /*event*/) const { DDL_CHECK(false); }
  void operator()(const core::StoreDone& /*event*/) const { DDL_CHECK(false); }
};

}  // namespace

absl::Status CheckSize(const char* field, const std::string& text, std::size_t limit_bytes) {
  if (text.size() > limit_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", text.size(), " bytes; the limit is ", limit_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<Duration> TimeoutFromWire(const char* field, std::int64_t ms) {
  // A year: no honest timeout is longer, and sums of two cannot overflow.
  constexpr std::int64_t kMaxTimeoutMs = std::int64_t{366} * 24 * 3600 * 1000;
  if (ms < 0 || ms > kMaxTimeoutMs) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", ms, " ms; it must be 0 to ", kMaxTimeoutMs));
  }
  return Duration(std::chrono::milliseconds(ms));
}

AgentMessage ToWire(const core::Event& event) {
  AgentMessage out;
  std::visit(ToAgentMessage{out}, event);
  return out;
}

absl::StatusOr<core::AgentConnected> HelloFromWire(const AgentMessage& message) {
  if (!message.has_hello()) {
    return absl::InvalidArgumentError("the first message of a session must be Hello");
  }
  const auto& hello = message.hello();
  DDL_RETURN_IF_ERROR(CheckSize("job_id", hello.job_id(), limits::kMaxJobIdBytes));
  DDL_RETURN_IF_ERROR(CheckSize("incarnation", hello.incarnation(), limits::kMaxHostBytes));
  DDL_RETURN_IF_ERROR(CheckSize("host", hello.host(), limits::kMaxHostBytes));
  DDL_RETURN_IF_ERROR(CheckSize("address", hello.address(), limits::kMaxHostBytes));
  core::AgentConnected event;
  event.agent = {hello.job_id(), hello.incarnation()};
  event.host = hello.host();
  event.address = hello.address();
  event.nproc = hello.nproc();
  if (hello.has_node_rank()) {
    event.node_rank = hello.node_rank();
  }
  event.min_nodes = hello.min_nodes();
  event.max_nodes = hello.max_nodes();
  event.max_restarts = hello.max_restarts();
  DDL_ASSIGN_OR_RETURN(event.join_timeout,
                       TimeoutFromWire("join_timeout_ms", hello.join_timeout_ms()));
  DDL_ASSIGN_OR_RETURN(event.last_call_timeout,
                       TimeoutFromWire("last_call_timeout_ms", hello.last_call_timeout_ms()));
  DDL_ASSIGN_OR_RETURN(event.stop_grace, TimeoutFromWire("stop_grace_ms", hello.stop_grace_ms()));
  event.plan = FromWire(hello.plan());
  DDL_RETURN_IF_ERROR(CheckPort("master_port", hello.master_port()));
  event.master_port = hello.master_port();
  event.last_round = hello.last_round();
  event.restart_count = hello.restart_count();
  event.last_plan = {FromWire(hello.last_plan_request()), hello.last_plan_world_size()};
  if (hello.worker_ports_size() > limits::kMaxWorkersPerNode) {
    return absl::InvalidArgumentError(absl::StrCat("worker_ports has ", hello.worker_ports_size(),
                                                   " entries; the limit is ",
                                                   limits::kMaxWorkersPerNode));
  }
  for (const std::uint32_t port : hello.worker_ports()) {
    DDL_RETURN_IF_ERROR(CheckPort("a worker port", port));
    event.worker_ports.push_back(port);
  }
  return event;
}

absl::StatusOr<core::Event> EventFromWire(const core::AgentRef& agent, AgentMessage message) {
  switch (message.kind_case()) {
    case AgentMessage::kHello:
      return absl::InvalidArgumentError("Hello came twice on one session");
    case AgentMessage::kHeartbeat: {
      DDL_RETURN_IF_ERROR(CheckPort("master_port", message.heartbeat().master_port()));
      return core::AgentHeard{agent, message.heartbeat().master_port()};
    }
    case AgentMessage::kWorkerFailed: {
      DDL_ASSIGN_OR_RETURN(auto failure, FailureFromWire(message.worker_failed().failure()));
      DDL_ASSIGN_OR_RETURN(const Duration age,
                           TimeoutFromWire("age_ms", message.worker_failed().age_ms()));
      return core::WorkerFailed{agent, message.worker_failed().round(), std::move(failure), age};
    }
    case AgentMessage::kWorkersSucceeded:
      return core::WorkersSucceeded{agent, message.workers_succeeded().round()};
    case AgentMessage::kRoundStopped:
      return core::RoundStopped{agent, message.round_stopped().round()};
    case AgentMessage::kPutKey: {
      auto& put = *message.mutable_put_key();
      DDL_RETURN_IF_ERROR(CheckKey(put.key()));
      DDL_RETURN_IF_ERROR(CheckSize("value", put.value(), limits::kMaxValueBytes));
      return core::KeyWritten{agent, put.round(), std::move(*put.mutable_key()),
                              std::move(*put.mutable_value())};
    }
    case AgentMessage::kGetKey:
      DDL_RETURN_IF_ERROR(CheckKey(message.get_key().key()));
      return core::KeyWanted{agent, message.get_key().round(), message.get_key().key()};
    case AgentMessage::kBarrierReached:
      DDL_RETURN_IF_ERROR(CheckKey(message.barrier_reached().name()));
      return core::BarrierReached{agent, message.barrier_reached().round(),
                                  message.barrier_reached().name()};
    case AgentMessage::kProposePlan:
      return core::PlanProposed{agent, message.propose_plan().round(),
                                FromWire(message.propose_plan().request())};
    case AgentMessage::kStopJob:
      return core::StopRequested{agent, message.stop_job().signal(),
                                 message.stop_job().this_node_only()};
    case AgentMessage::kLeave:
      DDL_RETURN_IF_ERROR(CheckSize("reason", message.leave().reason(), limits::kMaxTextBytes));
      return core::AgentLeft{agent, message.leave().reason()};
    case AgentMessage::kOutOfMemory: {
      auto& report = *message.mutable_out_of_memory();
      DDL_RETURN_IF_ERROR(CheckSize("text", report.text(), limits::kMaxTextBytes));
      return core::OutOfMemory{agent,         report.round(),
                               report.rank(), report.micro_batch_size(),
                               report.step(), std::move(*report.mutable_text())};
    }
    case AgentMessage::KIND_NOT_SET:
      break;
  }
  // A newer agent's message that this version does not know: it was heard.
  return core::AgentHeard{agent, 0};
}

}  // namespace ddl::wire
