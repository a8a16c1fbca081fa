// GatewayService: the gRPC side of the worker gateway.
//
// Each call becomes a Call in a mailbox; the thread that owns the gateway's
// state answers it with Finish, exactly once. Thread safe.
#ifndef DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_REACTOR_H_
#define DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "agent/base/clock.h"
#include "agent/base/mailbox.h"
#include "ddlaunch/v1/worker_gateway.grpc.pb.h"

namespace ddl {

// A call's request and where its answer goes; both live until Finish.
template <typename Request, typename Response>
struct Exchange {
  const Request* request;
  Response* response;
};

using RegisterExchange = Exchange<ddlaunch::v1::RegisterRequest, ddlaunch::v1::RegisterResponse>;
using PublishExchange = Exchange<ddlaunch::v1::PublishRequest, ddlaunch::v1::PublishResponse>;
using FetchExchange = Exchange<ddlaunch::v1::FetchRequest, ddlaunch::v1::FetchResponse>;
using BarrierExchange = Exchange<ddlaunch::v1::BarrierRequest, ddlaunch::v1::BarrierResponse>;
using AgreePlanExchange = Exchange<ddlaunch::v1::AgreePlanRequest, ddlaunch::v1::AgreePlanResponse>;
using MarkGroupExchange = Exchange<ddlaunch::v1::MarkGroupRequest, ddlaunch::v1::MarkGroupResponse>;
using ReportOutOfMemoryExchange =
    Exchange<ddlaunch::v1::ReportOutOfMemoryRequest, ddlaunch::v1::PlanRevision>;
using WatchPlanExchange = Exchange<ddlaunch::v1::WatchPlanRequest, ddlaunch::v1::PlanRevision>;
using ReportProgressExchange =
    Exchange<ddlaunch::v1::ReportProgressRequest, ddlaunch::v1::ReportProgressResponse>;

struct Call {
  using Body = std::variant<RegisterExchange, PublishExchange, FetchExchange, BarrierExchange,
                            AgreePlanExchange, MarkGroupExchange, ReportOutOfMemoryExchange,
                            WatchPlanExchange, ReportProgressExchange>;
  grpc::ServerUnaryReactor* reactor = nullptr;
  // A little before the caller's own deadline, so that the answer that says
  // what is missing still reaches it.
  std::optional<Instant> answer_by;
  Body body;

  void Finish(const absl::Status& status) const {
    reactor->Finish({static_cast<grpc::StatusCode>(status.code()), std::string(status.message())});
  }
};

class GatewayService final : public ddlaunch::v1::WorkerGateway::CallbackService {
 public:
  [[nodiscard]] Mailbox<Call>& calls() { return calls_; }
  // From now on a new call fails with UNAVAILABLE instead of going to calls().
  void Close();

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const ddlaunch::v1::RegisterRequest* request,
                                     ddlaunch::v1::RegisterResponse* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* Publish(grpc::CallbackServerContext* context,
                                    const ddlaunch::v1::PublishRequest* request,
                                    ddlaunch::v1::PublishResponse* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* Fetch(grpc::CallbackServerContext* context,
                                  const ddlaunch::v1::FetchRequest* request,
                                  ddlaunch::v1::FetchResponse* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context,
                                    const ddlaunch::v1::BarrierRequest* request,
                                    ddlaunch::v1::BarrierResponse* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* AgreePlan(grpc::CallbackServerContext* context,
                                      const ddlaunch::v1::AgreePlanRequest* request,
                                      ddlaunch::v1::AgreePlanResponse* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* MarkGroup(grpc::CallbackServerContext* context,
                                      const ddlaunch::v1::MarkGroupRequest* request,
                                      ddlaunch::v1::MarkGroupResponse* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* ReportOutOfMemory(grpc::CallbackServerContext* context,
                                              const ddlaunch::v1::ReportOutOfMemoryRequest* request,
                                              ddlaunch::v1::PlanRevision* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* WatchPlan(grpc::CallbackServerContext* context,
                                      const ddlaunch::v1::WatchPlanRequest* request,
                                      ddlaunch::v1::PlanRevision* response) override {
    return Take(context, request, response);
  }
  grpc::ServerUnaryReactor* ReportProgress(
      grpc::CallbackServerContext* context, const ddlaunch::v1::ReportProgressRequest* request,
      ddlaunch::v1::ReportProgressResponse* response) override {
    return Take(context, request, response);
  }

 private:
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context, const Request* request,
                                 Response* response) {
    Call call{context->DefaultReactor(), AnswerBy(*context),
              Exchange<Request, Response>{request, response}};
    const std::lock_guard lock(mutex_);
    if (closed_) {
      call.Finish(absl::UnavailableError("this node's ddlaunch is going away"));
    } else {
      calls_.Put(call);
    }
    return call.reactor;
  }

  static std::optional<Instant> AnswerBy(const grpc::CallbackServerContext& context);

  Mailbox<Call> calls_;
  std::mutex mutex_;
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_REACTOR_H_
