// Client of proto/ddlaunch/v1/worker_gateway.proto. Every call has a deadline, but
// for WatchPlan, which waits until it is answered or stopped, or the agent is gone.
#include "worker_sdk/src/grpc_gateway.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <stop_token>
#include <string>
#include <utility>

#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/plan_wire/plan_wire.h"
#include "ddlaunch/v1/worker_gateway.grpc.pb.h"
#include "worker_sdk/src/plan_bridge.h"

namespace ddl::internal {
namespace {

namespace v1 = ::ddlaunch::v1;

// For calls that the agent answers from memory.
constexpr Gateway::Timeout kPromptTimeout = std::chrono::seconds(30);
// For those that wait for the coordinator, which may be away for a moment.
constexpr Gateway::Timeout kCoordinatorTimeout = std::chrono::minutes(2);

void SetDeadline(grpc::ClientContext* call, Gateway::Timeout timeout) {
  // Far deadlines would overflow gRPC's clock; a year is for ever here.
  constexpr Gateway::Timeout kLongest = std::chrono::hours(24 * 365);
  call->set_deadline(std::chrono::system_clock::now() +
                     std::min(std::max(timeout, Gateway::Timeout(0)), kLongest));
}

Membership FromProto(const v1::RegisterResponse& message) {
  Membership membership;
  membership.rank = message.rank();
  membership.world_size = message.world_size();
  membership.local_world_size = message.local_world_size();
  membership.node_rank = message.node_rank();
  membership.num_nodes = message.num_nodes();
  membership.restart_count = message.restart_count();
  membership.job_id = message.job_id();
  membership.address = message.address().empty() ? membership.address : message.address();
  membership.master_addr = message.master_addr();
  membership.master_port = static_cast<int>(message.master_port());
  membership.has_launcher = true;
  return membership;
}

absl::StatusOr<Plan> FromProto(const v1::Plan& message) {
  const absl::StatusOr<plan::Plan> plan = wire::CheckedPlan(message);
  if (!plan.ok()) {
    return absl::InternalError(plan.status().message());
  }
  return FromCore(*plan);
}

absl::StatusOr<PlanRevision> FromProto(const v1::PlanRevision& message) {
  DDL_ASSIGN_OR_RETURN(Plan plan, FromProto(message.plan()));
  return PlanRevision{message.revision(), std::move(plan), message.step(), message.text()};
}

// A protobuf string is UTF-8; a library's error text need not be.
std::string AsUtf8(std::string_view text) {
  constexpr unsigned char kFirstBeyondAscii = 0x80;
  std::string ascii(text);
  std::replace_if(
      ascii.begin(), ascii.end(),
      [](char letter) { return static_cast<unsigned char>(letter) >= kFirstBeyondAscii; }, '?');
  return ascii;
}

class GrpcGateway final : public Gateway {
 public:
  GrpcGateway(std::string address, std::int64_t round, int local_rank)
      : address_(std::move(address)), round_(round), local_rank_(local_rank) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
    stub_ = v1::WorkerGateway::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  }

  absl::StatusOr<Membership> Register(Timeout timeout) {
    v1::RegisterRequest request;
    request.set_round(round_);
    request.set_local_rank(local_rank_);
    grpc::ClientContext call;
    SetDeadline(&call, timeout);
    v1::RegisterResponse response;
    DDL_RETURN_IF_ERROR(
        Outcome(stub_->Register(&call, request, &response), "registering at the agent", timeout));
    Membership membership = FromProto(response);
    membership.round = round_;
    membership.local_rank = local_rank_;
    rank_ = membership.rank;
    return membership;
  }

  absl::Status Publish(std::string_view key, std::string_view value) override {
    DDL_RETURN_IF_ERROR(CheckKeyValue(key, value));
    v1::PublishRequest request;
    request.set_round(round_);
    request.set_key(std::string(key));
    request.set_value(std::string(value));
    grpc::ClientContext call;
    SetDeadline(&call, kPromptTimeout);
    v1::PublishResponse response;
    return Outcome(stub_->Publish(&call, request, &response),
                   "publishing key \"" + std::string(key) + "\"", kPromptTimeout);
  }

  absl::StatusOr<std::string> Fetch(std::string_view key, Timeout timeout,
                                    const std::stop_token& stop) override {
    DDL_RETURN_IF_ERROR(CheckKey(key));
    v1::FetchRequest request;
    request.set_round(round_);
    request.set_key(std::string(key));
    grpc::ClientContext call;
    SetDeadline(&call, timeout);
    const std::stop_callback cancel(stop, [&call] { call.TryCancel(); });
    v1::FetchResponse response;
    DDL_RETURN_IF_ERROR(Outcome(stub_->Fetch(&call, request, &response),
                                "waiting for key \"" + std::string(key) + "\"", timeout));
    return std::move(*response.mutable_value());
  }

  absl::Status Barrier(std::string_view name, Timeout timeout,
                       const std::stop_token& stop) override {
    DDL_RETURN_IF_ERROR(CheckKey(name));
    v1::BarrierRequest request;
    request.set_round(round_);
    request.set_name(std::string(name));
    request.set_local_rank(local_rank_);
    grpc::ClientContext call;
    SetDeadline(&call, timeout);
    const std::stop_callback cancel(stop, [&call] { call.TryCancel(); });
    v1::BarrierResponse response;
    return Outcome(stub_->Barrier(&call, request, &response),
                   "waiting for every rank at barrier \"" + std::string(name) + "\"", timeout);
  }

  absl::StatusOr<AgreedPlan> AgreePlan(const PlanDefaults& defaults, Timeout timeout) override {
    v1::AgreePlanRequest request;
    request.set_round(round_);
    request.set_local_rank(local_rank_);
    *request.mutable_defaults() = wire::ToWire(ToCore(defaults));
    grpc::ClientContext call;
    SetDeadline(&call, timeout);
    v1::AgreePlanResponse response;
    DDL_RETURN_IF_ERROR(Outcome(stub_->AgreePlan(&call, request, &response),
                                "agreeing on the training plan with the other ranks", timeout));
    DDL_ASSIGN_OR_RETURN(Plan plan, FromProto(response.plan()));
    return AgreedPlan{std::move(plan), MaxMicroBatchSize(wire::FromWire(response.request()))};
  }

  absl::StatusOr<PlanRevision> ReportOutOfMemory(const OutOfMemoryReport& report) override {
    v1::ReportOutOfMemoryRequest request;
    request.set_round(round_);
    request.set_local_rank(local_rank_);
    request.set_micro_batch_size(report.micro_batch_size);
    request.set_step(report.step);
    request.set_exiting(report.exiting);
    v1::MemoryReport& memory = *request.mutable_memory();
    memory.set_asked_bytes(report.memory.asked_bytes);
    memory.set_in_use_bytes(report.memory.in_use_bytes);
    memory.set_reserved_bytes(report.memory.reserved_bytes);
    memory.set_free_bytes(report.memory.free_bytes);
    memory.set_total_bytes(report.memory.total_bytes);
    memory.set_text(AsUtf8(std::string_view(report.text).substr(0, limits::kMaxTextBytes)));
    grpc::ClientContext call;
    SetDeadline(&call, kCoordinatorTimeout);
    v1::PlanRevision response;
    DDL_RETURN_IF_ERROR(Outcome(stub_->ReportOutOfMemory(&call, request, &response),
                                "reporting out of memory", kCoordinatorTimeout));
    return report.exiting ? PlanRevision{} : FromProto(response);
  }

  absl::StatusOr<PlanRevision> WatchPlan(int after, const std::stop_token& stop) override {
    v1::WatchPlanRequest request;
    request.set_round(round_);
    request.set_local_rank(local_rank_);
    request.set_after_revision(after);
    grpc::ClientContext call;  // it waits as long as the round lasts
    const std::stop_callback cancel(stop, [&call] { call.TryCancel(); });
    v1::PlanRevision response;
    DDL_RETURN_IF_ERROR(Outcome(stub_->WatchPlan(&call, request, &response),
                                "watching the training plan", kPromptTimeout));
    return FromProto(response);
  }

  absl::Status MarkGroup(std::string_view name, bool open) override {
    v1::MarkGroupRequest request;
    request.set_round(round_);
    request.set_local_rank(local_rank_);
    request.set_name(std::string(name));
    request.set_open(open);
    grpc::ClientContext call;
    SetDeadline(&call, kPromptTimeout);
    v1::MarkGroupResponse response;
    return Outcome(stub_->MarkGroup(&call, request, &response),
                   open ? "entering a group" : "leaving a group", kPromptTimeout);
  }

  absl::Status ReportProgress(std::int64_t step, std::int64_t total_steps,
                              double samples_per_s) override {
    v1::ReportProgressRequest request;
    request.set_round(round_);
    request.set_local_rank(local_rank_);
    request.set_step(step);
    request.set_total_steps(total_steps);
    request.set_samples_per_s(samples_per_s);
    grpc::ClientContext call;
    SetDeadline(&call, kPromptTimeout);
    v1::ReportProgressResponse response;
    return Outcome(stub_->ReportProgress(&call, request, &response), "reporting progress",
                   kPromptTimeout);
  }

 private:
  // Who was doing what, and what the agent says about it.
  absl::Status Outcome(const grpc::Status& status, const std::string& doing,
                       Timeout timeout) const {
    if (status.ok()) {
      return absl::OkStatus();
    }
    std::string text = (rank_ < 0 ? "local rank " + std::to_string(local_rank_)
                                  : "rank " + std::to_string(rank_)) +
                       ", " + doing;
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      text += ": not done within " + ToText(timeout);
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      text += ": the agent at " + address_ + " cannot be reached; is its ddlaunch still running?";
    }
    // gRPC's own words for a passed deadline say nothing more.
    if (!status.error_message().empty() && status.error_message() != "Deadline Exceeded") {
      text += ": " + status.error_message();
    }
    return {static_cast<absl::StatusCode>(status.error_code()), text};
  }

  const std::string address_;
  const std::int64_t round_;
  const int local_rank_;
  int rank_ = -1;  // set once, before the gateway is shared
  std::unique_ptr<v1::WorkerGateway::Stub> stub_;
};

}  // namespace

absl::StatusOr<Registration> RegisterAtGateway(const std::string& address, std::int64_t round,
                                               int local_rank, Gateway::Timeout timeout) {
  auto gateway = std::make_shared<GrpcGateway>(address, round, local_rank);
  Registration registration;
  DDL_ASSIGN_OR_RETURN(registration.membership, gateway->Register(timeout));
  registration.gateway = std::move(gateway);
  return registration;
}

}  // namespace ddl::internal
