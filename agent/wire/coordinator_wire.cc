// What a coordinator says: CoordinatorMessage to and from the core's messages.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/wire/wire.h"
#include "agent/wire/worker_failure_wire.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl::wire {
namespace {

using ddlaunch::v1::CoordinatorMessage;

std::int64_t Milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

ddlaunch::v1::Reason ReasonToWire(core::Reason reason) {
  return static_cast<ddlaunch::v1::Reason>(reason);
}

core::Reason ReasonFromWire(ddlaunch::v1::Reason reason) {
  return ddlaunch::v1::Reason_IsValid(reason) ? static_cast<core::Reason>(reason)
                                              : core::Reason::kUnspecified;
}

struct ToCoordinatorMessage {
  CoordinatorMessage& out;

  void operator()(const core::Welcome& message) const {
    auto& welcome = *out.mutable_welcome();
    welcome.set_heartbeat_interval_ms(Milliseconds(message.heartbeat_interval));
    welcome.set_heartbeat_timeout_ms(Milliseconds(message.heartbeat_timeout));
    welcome.set_reconnect_grace_ms(Milliseconds(message.reconnect_grace));
  }
  void operator()(const core::HeartbeatAck& /*message*/) const { out.mutable_heartbeat_ack(); }
  void operator()(const core::Rejected& message) const {
    auto& rejected = *out.mutable_rejected();
    rejected.set_reason(ReasonToWire(message.reason));
    rejected.set_text(message.text);
  }
  void operator()(const core::Waiting& message) const {
    auto& waiting = *out.mutable_waiting();
    waiting.set_nodes_joined(message.nodes_joined);
    waiting.set_nodes_needed(message.nodes_needed);
    waiting.set_text(message.text);
  }
  void operator()(const core::Spare& message) const {
    out.mutable_spare()->set_place(message.place);
    out.mutable_spare()->set_text(message.text);
  }
  void operator()(const core::RoundStart& message) const {
    auto& start = *out.mutable_round_start();
    start.set_round(message.round);
    start.set_restart_count(message.restart_count);
    start.set_max_restarts(message.max_restarts);
    start.set_node_rank(message.node_rank);
    start.set_first_rank(message.first_rank);
    start.set_nproc(message.nproc);
    start.set_num_nodes(message.num_nodes);
    start.set_world_size(message.world_size);
    start.set_master_addr(message.master_addr);
    start.set_master_port(message.master_port);
    if (message.plan.has_value()) {
      *start.mutable_plan() = ToWire(*message.plan);
    }
    if (!message.plan_request.empty()) {
      *start.mutable_plan_request() = ToWire(message.plan_request);
    }
    start.set_first_worker_port(message.first_worker_port);
    if (message.worker_addresses != nullptr) {
      start.mutable_worker_addresses()->Assign(message.worker_addresses->begin(),
                                               message.worker_addresses->end());
    }
  }
  void operator()(const core::RoundStop& message) const {
    auto& stop = *out.mutable_round_stop();
    stop.set_round(message.round);
    stop.set_reason(ReasonToWire(message.reason));
    stop.set_text(message.text);
    stop.set_will_restart(message.will_restart);
    if (message.root_cause.has_value()) {
      *stop.mutable_root_cause() = FailureToWire(*message.root_cause);
    }
  }
  void operator()(const core::KeyValue& message) const {
    auto& value = *out.mutable_key_value();
    value.set_round(message.round);
    value.set_key(message.key);
    value.set_value(message.value);
  }
  void operator()(const core::BarrierDone& message) const {
    auto& done = *out.mutable_barrier_done();
    done.set_round(message.round);
    done.set_name(message.name);
  }
  void operator()(const core::PlanReply& message) const {
    auto& reply = *out.mutable_plan_reply();
    reply.set_round(message.round);
    reply.set_error(message.error);
    if (message.plan.has_value()) {
      *reply.mutable_plan() = ToWire(*message.plan);
      *reply.mutable_plan_request() = ToWire(message.plan_request);
    }
  }
  void operator()(const core::PlanChanged& message) const {
    auto& changed = *out.mutable_plan_changed();
    changed.set_round(message.round);
    changed.set_revision(message.revision);
    if (message.plan.has_value()) {
      *changed.mutable_plan() = ToWire(*message.plan);
      *changed.mutable_plan_request() = ToWire(message.plan_request);
    }
    changed.set_step(message.step);
    changed.set_text(message.text);
    changed.set_error(message.error);
    changed.set_rank(message.rank);
  }
  void operator()(const core::JobDone& message) const {
    auto& done = *out.mutable_job_done();
    done.set_reason(ReasonToWire(message.reason));
    done.set_exit_code(message.exit_code);
    done.set_text(message.text);
    done.set_restart_count(message.restart_count);
    if (message.root_cause.has_value()) {
      *done.mutable_root_cause() = FailureToWire(*message.root_cause);
    }
  }
};

// Null when there are none.
absl::StatusOr<core::WorkerAddresses> AddressesFromWire(const ddlaunch::v1::RoundStart& start) {
  if (start.worker_addresses_size() == 0) {
    return nullptr;
  }
  if (start.worker_addresses_size() != start.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("worker_addresses has ",
                                                   start.worker_addresses_size(),
                                                   " entries for a world of ", start.world_size()));
  }
  std::size_t bytes = 0;
  for (const std::string& address : start.worker_addresses()) {
    bytes += address.size() + limits::kWorkerAddressExtraBytes;
  }
  if (bytes > limits::kMaxWorkerAddressesBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker_addresses has ", bytes, " bytes; the limit is ", limits::kMaxWorkerAddressesBytes));
  }
  return std::make_shared<const std::vector<std::string>>(start.worker_addresses().begin(),
                                                          start.worker_addresses().end());
}

// The plan of a message, which must be what this node computes for the request.
absl::StatusOr<plan::Plan> SolvedPlan(const ddlaunch::v1::Plan& wire, const plan::Request& request,
                                      std::int64_t world_size) {
  DDL_ASSIGN_OR_RETURN(plan::Plan plan, CheckedPlan(wire));
  DDL_ASSIGN_OR_RETURN(const plan::Plan solved, plan::Solve(request, world_size));
  if (solved != plan) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the coordinator's plan (", plan::Describe(plan), ") is not what this node computes (",
        plan::Describe(solved), "); run the same version of ddlaunch on every node"));
  }
  return plan;
}

absl::StatusOr<core::Message> RoundStartFromWire(const ddlaunch::v1::RoundStart& start) {
  core::RoundStart out;
  out.round = start.round();
  out.restart_count = start.restart_count();
  out.max_restarts = start.max_restarts();
  out.node_rank = start.node_rank();
  out.first_rank = start.first_rank();
  out.nproc = start.nproc();
  out.num_nodes = start.num_nodes();
  out.world_size = start.world_size();
  out.master_addr = start.master_addr();
  out.master_port = start.master_port();
  out.first_worker_port = start.first_worker_port();
  if (out.node_rank < 0 || out.node_rank >= out.num_nodes || out.first_rank < 0 ||
      out.world_size < 1 || out.nproc < 1 || out.world_size - out.nproc < out.first_rank ||
      out.master_port > UINT16_MAX || out.first_worker_port > UINT16_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "round ", out.round, " makes no sense: node ", out.node_rank, " of ", out.num_nodes,
        ", ranks from ", out.first_rank, ", ", out.nproc, " of a world of ", out.world_size,
        ", master port ", out.master_port, ", rank 0's own port ", out.first_worker_port));
  }
  DDL_ASSIGN_OR_RETURN(out.worker_addresses, AddressesFromWire(start));
  out.plan_request = FromWire(start.plan_request());
  if (start.has_plan()) {
    DDL_ASSIGN_OR_RETURN(out.plan, SolvedPlan(start.plan(), out.plan_request, out.world_size));
  }
  return out;
}

absl::StatusOr<core::Message> RoundStopFromWire(const ddlaunch::v1::RoundStop& stop) {
  core::RoundStop out;
  out.round = stop.round();
  out.reason = ReasonFromWire(stop.reason());
  out.text = stop.text();
  out.will_restart = stop.will_restart();
  if (stop.has_root_cause()) {
    DDL_ASSIGN_OR_RETURN(out.root_cause, FailureFromWire(stop.root_cause()));
  }
  return out;
}

absl::StatusOr<core::Message> JobDoneFromWire(const ddlaunch::v1::JobDone& done) {
  core::JobDone out;
  out.reason = ReasonFromWire(done.reason());
  out.exit_code = done.exit_code();
  out.text = done.text();
  out.restart_count = done.restart_count();
  if (done.has_root_cause()) {
    DDL_ASSIGN_OR_RETURN(out.root_cause, FailureFromWire(done.root_cause()));
  }
  return out;
}

absl::StatusOr<core::Message> PlanReplyFromWire(const ddlaunch::v1::PlanReply& reply) {
  core::PlanReply out;
  out.round = reply.round();
  out.error = reply.error();
  if (reply.has_plan()) {
    out.plan_request = FromWire(reply.plan_request());
    DDL_ASSIGN_OR_RETURN(out.plan,
                         SolvedPlan(reply.plan(), out.plan_request, reply.plan().world_size()));
  }
  return out;
}

absl::StatusOr<core::Message> PlanChangedFromWire(const ddlaunch::v1::PlanChanged& changed) {
  core::PlanChanged out;
  out.round = changed.round();
  out.revision = changed.revision();
  out.plan_request = FromWire(changed.plan_request());
  out.step = changed.step();
  out.text = changed.text();
  out.error = changed.error();
  out.rank = changed.rank();
  if (out.revision < 0 || changed.has_plan() != out.error.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a change of the plan makes no sense: revision ", out.revision,
                     changed.has_plan() ? ", a plan" : ", no plan", ", error '", out.error, "'"));
  }
  if (changed.has_plan()) {
    DDL_ASSIGN_OR_RETURN(out.plan,
                         SolvedPlan(changed.plan(), out.plan_request, changed.plan().world_size()));
  }
  return out;
}

absl::StatusOr<core::Message> WelcomeFromWire(const ddlaunch::v1::Welcome& welcome) {
  core::Welcome out;
  DDL_ASSIGN_OR_RETURN(out.heartbeat_interval,
                       TimeoutFromWire("heartbeat_interval_ms", welcome.heartbeat_interval_ms()));
  DDL_ASSIGN_OR_RETURN(out.heartbeat_timeout,
                       TimeoutFromWire("heartbeat_timeout_ms", welcome.heartbeat_timeout_ms()));
  DDL_ASSIGN_OR_RETURN(out.reconnect_grace,
                       TimeoutFromWire("reconnect_grace_ms", welcome.reconnect_grace_ms()));
  return out;
}

}  // namespace

CoordinatorMessage ToWire(const core::Message& message) {
  CoordinatorMessage out;
  std::visit(ToCoordinatorMessage{out}, message);
  return out;
}

absl::StatusOr<core::Message> MessageFromWire(CoordinatorMessage message) {
  switch (message.kind_case()) {
    case CoordinatorMessage::kWelcome:
      return WelcomeFromWire(message.welcome());
    case CoordinatorMessage::kHeartbeatAck:
      return core::HeartbeatAck{};
    case CoordinatorMessage::kRejected:
      return core::Rejected{ReasonFromWire(message.rejected().reason()), message.rejected().text()};
    case CoordinatorMessage::kWaiting:
      return core::Waiting{message.waiting().nodes_joined(), message.waiting().nodes_needed(),
                           message.waiting().text()};
    case CoordinatorMessage::kRoundStart:
      return RoundStartFromWire(message.round_start());
    case CoordinatorMessage::kRoundStop:
      return RoundStopFromWire(message.round_stop());
    case CoordinatorMessage::kKeyValue: {
      auto& value = *message.mutable_key_value();
      return core::KeyValue{value.round(), std::move(*value.mutable_key()),
                            std::move(*value.mutable_value())};
    }
    case CoordinatorMessage::kBarrierDone:
      return core::BarrierDone{message.barrier_done().round(), message.barrier_done().name()};
    case CoordinatorMessage::kPlanReply:
      return PlanReplyFromWire(message.plan_reply());
    case CoordinatorMessage::kJobDone:
      return JobDoneFromWire(message.job_done());
    case CoordinatorMessage::kSpare:
      return core::Spare{message.spare().place(), message.spare().text()};
    case CoordinatorMessage::kPlanChanged:
      return PlanChangedFromWire(message.plan_changed());
    case CoordinatorMessage::KIND_NOT_SET:
      break;
  }
  return absl::UnimplementedError("the coordinator sent a message this version does not know");
}

}  // namespace ddl::wire
