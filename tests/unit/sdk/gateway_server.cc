// Serves proto/ddlaunch/v1/worker_gateway.proto out of a MemoryGateway.
#include "tests/unit/sdk/gateway_server.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <utility>

#include "agent/base/check.h"
#include "agent/plan_wire/plan_wire.h"
#include "ddlaunch/v1/worker_gateway.grpc.pb.h"
#include "worker_sdk/src/memory_gateway.h"
#include "worker_sdk/src/plan_bridge.h"

namespace ddl::testing {
namespace {

namespace v1 = ::ddlaunch::v1;

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// What is left of the caller's time, less a little to send the answer.
std::chrono::milliseconds TimeLeft(const grpc::ServerContext& call) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      call.deadline() - std::chrono::system_clock::now());
  return std::clamp(left - std::chrono::milliseconds(100), std::chrono::milliseconds(0),
                    std::chrono::milliseconds(std::chrono::hours(1)));
}

template <typename T>
std::optional<T> Given(bool has, T value) {
  return has ? std::optional<T>(value) : std::nullopt;
}

class Service final : public v1::WorkerGateway::Service {
 public:
  explicit Service(const GatewayOptions& options)
      : options_(options), gateway_(options.world_size) {}

  grpc::Status Register(grpc::ServerContext* /*call*/, const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    if (request->round() != options_.round) {
      return OverStatus();
    }
    if (request->local_rank() >= options_.world_size) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "no such local rank on this node"};
    }
    response->set_rank(request->local_rank());
    response->set_world_size(options_.world_size);
    response->set_local_world_size(options_.world_size);
    response->set_num_nodes(1);
    response->set_restart_count(options_.restart_count);
    response->set_master_addr("127.0.0.1");
    response->set_master_port(29'500);
    response->set_job_id("test-job");
    response->set_address("127.0.0.1");
    return grpc::Status::OK;
  }

  grpc::Status Publish(grpc::ServerContext* /*call*/, const v1::PublishRequest* request,
                       v1::PublishResponse* /*response*/) override {
    return request->round() == options_.round
               ? ToGrpc(gateway_.Publish(request->key(), request->value()))
               : OverStatus();
  }

  grpc::Status Fetch(grpc::ServerContext* call, const v1::FetchRequest* request,
                     v1::FetchResponse* response) override {
    const absl::StatusOr<std::string> value =
        gateway_.Fetch(request->key(), TimeLeft(*call), stop_.get_token());
    if (value.ok()) {
      response->set_value(*value);
    }
    return ToGrpc(value.status());
  }

  grpc::Status Barrier(grpc::ServerContext* call, const v1::BarrierRequest* request,
                       v1::BarrierResponse* /*response*/) override {
    return ToGrpc(gateway_.Barrier(request->name(), TimeLeft(*call), stop_.get_token()));
  }

  grpc::Status AgreePlan(grpc::ServerContext* call, const v1::AgreePlanRequest* request,
                         v1::AgreePlanResponse* response) override {
    PlanDefaults defaults = internal::FromCore(wire::FromWire(request->defaults()));
    if (options_.global_batch_size > 0 || options_.micro_batch_size > 0) {
      defaults.global_batch_size =
          Given(options_.global_batch_size > 0, options_.global_batch_size);
      defaults.micro_batch_size = Given(options_.micro_batch_size > 0, options_.micro_batch_size);
    }
    const absl::StatusOr<internal::AgreedPlan> agreed =
        gateway_.AgreePlan(defaults, TimeLeft(*call));
    if (agreed.ok()) {
      v1::Plan* const out = response->mutable_plan();
      *out = wire::ToWire(internal::ToCore(agreed->plan));
      out->set_hash(options_.wrong_hash ? "0123456789abcdef" : agreed->plan.hash);
    }
    return ToGrpc(agreed.status());
  }

  grpc::Status ReportOutOfMemory(grpc::ServerContext* /*call*/,
                                 const v1::ReportOutOfMemoryRequest* request,
                                 v1::PlanRevision* response) override {
    if (request->exiting()) {
      exiting_reports_ += 1;
    }
    return Answer(gateway_.ReportOutOfMemory({request->micro_batch_size(),
                                              request->step(),
                                              {},
                                              request->memory().text(),
                                              request->exiting()}),
                  response);
  }

  grpc::Status WatchPlan(grpc::ServerContext* /*call*/, const v1::WatchPlanRequest* request,
                         v1::PlanRevision* response) override {
    return Answer(gateway_.WatchPlan(request->after_revision(), stop_.get_token()), response);
  }

  grpc::Status MarkGroup(grpc::ServerContext* /*call*/, const v1::MarkGroupRequest* /*request*/,
                         v1::MarkGroupResponse* /*response*/) override {
    return grpc::Status::OK;
  }
  grpc::Status ReportProgress(grpc::ServerContext* /*call*/,
                              const v1::ReportProgressRequest* request,
                              v1::ReportProgressResponse* /*response*/) override {
    reported_step_ = request->step();
    return grpc::Status::OK;
  }

  [[nodiscard]] std::int64_t reported_step() const { return reported_step_; }
  [[nodiscard]] int exiting_reports() const { return exiting_reports_; }
  // Ends the calls that wait here.
  void Stop() { stop_.request_stop(); }

 private:
  static grpc::Status Answer(const absl::StatusOr<internal::PlanRevision>& revision,
                             v1::PlanRevision* response) {
    if (revision.ok()) {
      response->set_revision(revision->revision);
      *response->mutable_plan() = wire::ToWire(internal::ToCore(revision->plan));
      response->mutable_plan()->set_hash(revision->plan.hash);
      response->set_step(revision->step);
      response->set_text(revision->text);
    }
    return ToGrpc(revision.status());
  }
  static grpc::Status OverStatus() { return {grpc::StatusCode::ABORTED, "the round is over"}; }

  const GatewayOptions options_;
  internal::MemoryGateway gateway_;
  std::stop_source stop_;
  std::atomic<std::int64_t> reported_step_{0};
  std::atomic<int> exiting_reports_{0};
};

}  // namespace

struct GatewayServer::Impl {
  explicit Impl(const GatewayOptions& options) : service(options) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
};

GatewayServer::GatewayServer(const GatewayOptions& options)
    : impl_(std::make_unique<Impl>(options)),
      directory_((std::filesystem::temp_directory_path() / "ddl-gateway-XXXXXX").string()) {
  DDL_CHECK(::mkdtemp(directory_.data()) != nullptr);
  address_ = "unix:" + directory_ + "/socket";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  DDL_CHECK(impl_->server != nullptr);
}

GatewayServer::~GatewayServer() {
  Stop();
  std::filesystem::remove_all(directory_);
}

std::int64_t GatewayServer::reported_step() const {
  return impl_->service.reported_step();
}

int GatewayServer::exiting_reports() const {
  return impl_->service.exiting_reports();
}

void GatewayServer::Stop() {
  impl_->service.Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace ddl::testing
