// The worker gateway's state: this round's keys, barriers and plan.
#include "launcher/gateway/gateway.h"

#include <grpcpp/grpcpp.h>

#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/base/limits.h"
#include "agent/wire/channel.h"
#include "agent/wire/wire.h"
#include "launcher/gateway/gateway_reactor.h"
#include "launcher/gateway/private_directory.h"

namespace ddl {
namespace {

using ddlaunch::v1::AgreePlanRequest;
using ddlaunch::v1::AgreePlanResponse;
using ddlaunch::v1::BarrierRequest;
using ddlaunch::v1::BarrierResponse;
using ddlaunch::v1::FetchRequest;
using ddlaunch::v1::FetchResponse;
using ddlaunch::v1::PublishRequest;
using ddlaunch::v1::PublishResponse;
using ddlaunch::v1::RegisterRequest;
using ddlaunch::v1::RegisterResponse;
using ddlaunch::v1::ReportProgressRequest;
using ddlaunch::v1::ReportProgressResponse;

absl::Status CheckKey(const char* what, const std::string& key) {
  if (key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " is empty"));
  }
  return wire::CheckSize(what, key, limits::kMaxKeyBytes);
}

}  // namespace

class Gateway::Impl {
 public:
  Impl(std::string job_id, std::string host, std::string address, SendFn send)
      : job_id_(std::move(job_id)),
        host_(std::move(host)),
        address_(std::move(address)),
        send_(std::move(send)) {}
  ~Impl() { Shutdown(); }

  absl::Status Serve();
  void BeginRound(const core::RoundStart& round) { round_ = round; }
  void Resend();
  void EndRound(const std::string& why);
  void OnMessage(const core::KeyValue& message);
  void OnMessage(const core::BarrierDone& message);
  void OnMessage(const core::PlanReply& message);
  void OnReady(Instant now);

  [[nodiscard]] std::optional<Instant> deadline();
  [[nodiscard]] int poll_fd() { return service_.calls().fd(); }
  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] const std::string& directory() const { return directory_.path(); }
  [[nodiscard]] std::optional<Progress> progress(std::int32_t local_rank) const {
    const auto it = progress_.find(local_rank);
    return it == progress_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  struct KeyState {
    std::optional<std::string> value;
    bool asked = false;         // the coordinator was asked for it
    std::vector<Call> waiting;  // Publish and Fetch calls
  };
  struct BarrierState {
    std::set<std::int32_t> arrived;  // local ranks
    bool done = false;
    std::vector<Call> waiting;
  };
  struct PlanState {
    // What each local rank offered: all must be equal.
    std::optional<std::pair<std::int32_t, plan::Request>> offered;
    std::optional<core::PlanReply> reply;
    std::vector<Call> waiting;
  };

  void Handle(Call call);
  void Handle(const Call& call, const Exchange<RegisterRequest, RegisterResponse>& body);
  void Handle(const Call& call, const Exchange<PublishRequest, PublishResponse>& body);
  void Handle(const Call& call, const Exchange<FetchRequest, FetchResponse>& body);
  void Handle(const Call& call, const Exchange<BarrierRequest, BarrierResponse>& body);
  void Handle(const Call& call, const Exchange<AgreePlanRequest, AgreePlanResponse>& body);
  void Handle(const Call& call,
              const Exchange<ReportProgressRequest, ReportProgressResponse>& body);

  absl::Status CheckRound(std::int64_t round) const;
  absl::Status CheckLocalRank(std::int32_t local_rank) const;
  static void AnswerKey(const Call& call, const std::string& value);
  void AnswerPlan(const Call& call) const;
  // Every list of waiting calls, with the words for one whose time is up.
  template <typename Fn>
  void ForEachWaitingList(const Fn& fn);
  [[nodiscard]] std::string MissingAt(const std::string& name, const BarrierState& barrier) const;
  void Shutdown();

  const std::string job_id_;
  const std::string host_;
  const std::string address_;
  const SendFn send_;
  PrivateDirectory directory_;  // outlives the server
  std::string target_;
  GatewayService service_;
  std::unique_ptr<grpc::Server> server_;

  std::optional<core::RoundStart> round_;
  std::map<std::string, KeyState> keys_;
  std::map<std::string, BarrierState> barriers_;
  PlanState plan_;
  std::map<std::int32_t, Progress> progress_;
};

absl::Status Gateway::Impl::Serve() {
  auto directory = PrivateDirectory::Make();
  if (!directory.ok()) {
    return directory.status();
  }
  directory_ = *std::move(directory);
  target_ = absl::StrCat("unix:", directory_.path(), "/gateway.sock");
  grpc::ServerBuilder builder;
  wire::ConfigureServer(&builder);
  builder.AddListeningPort(target_, grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve the worker gateway on ", target_));
  }
  return absl::OkStatus();
}

void Gateway::Impl::Shutdown() {
  service_.Close();
  EndRound("this node's ddlaunch is going away");
  for (const Call& call : service_.calls().TakeAll()) {
    call.Finish(absl::UnavailableError("this node's ddlaunch is going away"));
  }
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now());
  }
}

void Gateway::Impl::EndRound(const std::string& why) {
  ForEachWaitingList([&why](std::vector<Call>& waiting, const auto& /*missing*/) {
    for (const Call& call : std::exchange(waiting, {})) {
      call.Finish(absl::AbortedError(why));
    }
  });
  round_.reset();
  keys_.clear();
  barriers_.clear();
  plan_ = {};
  progress_.clear();
}

void Gateway::Impl::Resend() {
  for (const auto& [name, key] : keys_) {
    for (const Call& call : key.waiting) {
      if (const auto* publish =
              std::get_if<Exchange<PublishRequest, PublishResponse>>(&call.body)) {
        send_(core::KeyWritten{{}, round_->round, name, publish->request->value()});
      }
    }
    if (!key.waiting.empty()) {
      send_(core::KeyWanted{{}, round_->round, name});
    }
  }
  for (const auto& [name, barrier] : barriers_) {
    if (!barrier.done && barrier.arrived.size() == static_cast<std::size_t>(round_->nproc)) {
      send_(core::BarrierReached{{}, round_->round, name});
    }
  }
  if (plan_.offered.has_value() && !plan_.reply.has_value()) {
    send_(core::PlanProposed{{}, round_->round, plan_.offered->second});
  }
}

template <typename Fn>
void Gateway::Impl::ForEachWaitingList(const Fn& fn) {
  for (auto& [name, key] : keys_) {
    fn(key.waiting,
       [&name = name] { return absl::StrCat("no rank has published key \"", name, "\""); });
  }
  for (auto& [name, barrier] : barriers_) {
    fn(barrier.waiting,
       [this, &name = name, &barrier = barrier] { return MissingAt(name, barrier); });
  }
  fn(plan_.waiting, [] { return std::string("the coordinator has not answered with a plan"); });
}

std::string Gateway::Impl::MissingAt(const std::string& name, const BarrierState& barrier) const {
  std::vector<std::int32_t> missing;
  for (std::int32_t local_rank = 0; local_rank < round_->nproc; ++local_rank) {
    if (!barrier.arrived.contains(local_rank)) {
      missing.push_back(round_->first_rank + local_rank);
    }
  }
  if (missing.empty()) {
    return absl::StrCat("barrier \"", name, "\": all ranks of ", host_,
                        " have entered; ranks of another node have not");
  }
  return absl::StrCat("barrier \"", name, "\": waiting for rank ", absl::StrJoin(missing, ", "),
                      " on ", host_);
}

std::optional<Instant> Gateway::Impl::deadline() {
  std::optional<Instant> first;
  ForEachWaitingList([&first](const std::vector<Call>& waiting, const auto& /*missing*/) {
    for (const Call& call : waiting) {
      if (call.answer_by.has_value() && (!first.has_value() || *call.answer_by < *first)) {
        first = call.answer_by;
      }
    }
  });
  return first;
}

void Gateway::Impl::OnReady(Instant now) {
  for (const Call& call : service_.calls().TakeAll()) {
    Handle(call);
  }
  ForEachWaitingList([now](std::vector<Call>& waiting, const auto& missing) {
    std::erase_if(waiting, [now, &missing](const Call& call) {
      const bool is_due = call.answer_by.has_value() && *call.answer_by <= now;
      if (is_due) {
        call.Finish(absl::DeadlineExceededError(missing()));
      }
      return is_due;
    });
  });
}

void Gateway::Impl::Handle(Call call) {
  std::visit(
      [this, &call](const auto& body) {
        if (absl::Status status = CheckRound(body.request->round()); !status.ok()) {
          call.Finish(status);
        } else {
          Handle(call, body);
        }
      },
      call.body);
}

absl::Status Gateway::Impl::CheckRound(std::int64_t round) const {
  if (round_.has_value() && round_->round == round) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat("round ", round, " is over; this worker must exit"));
}

absl::Status Gateway::Impl::CheckLocalRank(std::int32_t local_rank) const {
  if (local_rank >= 0 && local_rank < round_->nproc) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "local rank ", local_rank, " is not one of the ", round_->nproc, " workers of ", host_));
}

void Gateway::Impl::Handle(const Call& call,
                           const Exchange<RegisterRequest, RegisterResponse>& body) {
  const absl::Status status = CheckLocalRank(body.request->local_rank());
  if (status.ok()) {
    RegisterResponse& out = *body.response;
    out.set_rank(round_->first_rank + body.request->local_rank());
    out.set_world_size(round_->world_size);
    out.set_local_world_size(round_->nproc);
    out.set_node_rank(round_->node_rank);
    out.set_num_nodes(round_->num_nodes);
    out.set_restart_count(round_->restart_count);
    out.set_master_addr(round_->master_addr);
    out.set_master_port(round_->master_port);
    out.set_job_id(job_id_);
    out.set_address(address_);
  }
  call.Finish(status);
}

void Gateway::Impl::Handle(const Call& call,
                           const Exchange<PublishRequest, PublishResponse>& body) {
  absl::Status status = CheckKey("key", body.request->key());
  if (status.ok()) {
    status = wire::CheckSize("value", body.request->value(), limits::kMaxValueBytes);
  }
  if (!status.ok()) {
    call.Finish(status);
    return;
  }
  KeyState& key = keys_[body.request->key()];
  if (key.value.has_value()) {
    AnswerKey(call, *key.value);
    return;
  }
  // The coordinator answers with the value that holds: the first written.
  key.waiting.push_back(call);
  key.asked = true;
  send_(core::KeyWritten{{}, round_->round, body.request->key(), body.request->value()});
}

void Gateway::Impl::Handle(const Call& call, const Exchange<FetchRequest, FetchResponse>& body) {
  if (absl::Status status = CheckKey("key", body.request->key()); !status.ok()) {
    call.Finish(status);
    return;
  }
  KeyState& key = keys_[body.request->key()];
  if (key.value.has_value()) {
    AnswerKey(call, *key.value);
    return;
  }
  key.waiting.push_back(call);
  if (!std::exchange(key.asked, true)) {
    send_(core::KeyWanted{{}, round_->round, body.request->key()});
  }
}

void Gateway::Impl::AnswerKey(const Call& call, const std::string& value) {
  if (const auto* fetch = std::get_if<Exchange<FetchRequest, FetchResponse>>(&call.body)) {
    fetch->response->set_value(value);
    call.Finish(absl::OkStatus());
    return;
  }
  const auto& publish = std::get<Exchange<PublishRequest, PublishResponse>>(call.body);
  if (publish.request->value() == value) {
    call.Finish(absl::OkStatus());
  } else {
    call.Finish(absl::AlreadyExistsError(
        absl::StrCat("key \"", publish.request->key(),
                     "\" was written before in this round with another value")));
  }
}

void Gateway::Impl::OnMessage(const core::KeyValue& message) {
  if (!CheckRound(message.round).ok()) {
    return;
  }
  KeyState& key = keys_[message.key];
  key.value = message.value;
  for (const Call& call : std::exchange(key.waiting, {})) {
    AnswerKey(call, *key.value);
  }
}

void Gateway::Impl::Handle(const Call& call,
                           const Exchange<BarrierRequest, BarrierResponse>& body) {
  absl::Status status = CheckKey("barrier's name", body.request->name());
  if (status.ok()) {
    status = CheckLocalRank(body.request->local_rank());
  }
  if (status.ok() && barriers_.size() >= limits::kMaxBarriersPerRound &&
      !barriers_.contains(body.request->name())) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("this round has ", barriers_.size(), " barriers already, the limit"));
  }
  if (!status.ok()) {
    call.Finish(status);
    return;
  }
  BarrierState& barrier = barriers_[body.request->name()];
  if (barrier.done) {
    call.Finish(absl::OkStatus());
    return;
  }
  barrier.waiting.push_back(call);
  const bool is_new = barrier.arrived.insert(body.request->local_rank()).second;
  if (is_new && barrier.arrived.size() == static_cast<std::size_t>(round_->nproc)) {
    send_(core::BarrierReached{{}, round_->round, body.request->name()});
  }
}

void Gateway::Impl::OnMessage(const core::BarrierDone& message) {
  if (!CheckRound(message.round).ok()) {
    return;
  }
  BarrierState& barrier = barriers_[message.name];
  barrier.done = true;
  for (const Call& call : std::exchange(barrier.waiting, {})) {
    call.Finish(absl::OkStatus());
  }
}

void Gateway::Impl::Handle(const Call& call,
                           const Exchange<AgreePlanRequest, AgreePlanResponse>& body) {
  if (absl::Status status = CheckLocalRank(body.request->local_rank()); !status.ok()) {
    call.Finish(status);
    return;
  }
  const plan::Request offer = wire::FromWire(body.request->defaults());
  if (!plan_.offered.has_value()) {
    plan_.offered.emplace(body.request->local_rank(), offer);
    send_(core::PlanProposed{{}, round_->round, offer});
  } else if (plan_.offered->second != offer) {
    call.Finish(absl::FailedPreconditionError(absl::StrCat(
        "ranks of ", host_, " ask for different numbers: rank ",
        round_->first_rank + plan_.offered->first, " for ", plan::Describe(plan_.offered->second),
        ", rank ", round_->first_rank + body.request->local_rank(), " for ",
        plan::Describe(offer))));
    return;
  }
  if (plan_.reply.has_value()) {
    AnswerPlan(call);
  } else {
    plan_.waiting.push_back(call);
  }
}

void Gateway::Impl::AnswerPlan(const Call& call) const {
  const auto& body = std::get<Exchange<AgreePlanRequest, AgreePlanResponse>>(call.body);
  if (plan_.reply->plan.has_value()) {
    *body.response->mutable_plan() = wire::ToWire(*plan_.reply->plan);
    call.Finish(absl::OkStatus());
  } else {
    call.Finish(absl::FailedPreconditionError(plan_.reply->error));
  }
}

void Gateway::Impl::OnMessage(const core::PlanReply& message) {
  if (!CheckRound(message.round).ok()) {
    return;
  }
  plan_.reply = message;
  for (const Call& call : std::exchange(plan_.waiting, {})) {
    AnswerPlan(call);
  }
}

void Gateway::Impl::Handle(const Call& call,
                           const Exchange<ReportProgressRequest, ReportProgressResponse>& body) {
  const absl::Status status = CheckLocalRank(body.request->local_rank());
  if (status.ok()) {
    progress_[body.request->local_rank()] = {body.request->step(), body.request->total_steps(),
                                             body.request->samples_per_s()};
  }
  call.Finish(status);
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(std::string job_id, std::string host,
                                                        std::string address, SendFn send) {
  auto impl = std::make_unique<Impl>(std::move(job_id), std::move(host), std::move(address),
                                     std::move(send));
  if (absl::Status status = impl->Serve(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

const std::string& Gateway::target() const {
  return impl_->target();
}
const std::string& Gateway::directory() const {
  return impl_->directory();
}
void Gateway::BeginRound(const core::RoundStart& round) {
  impl_->BeginRound(round);
}
void Gateway::Resend() {
  impl_->Resend();
}
void Gateway::EndRound(const std::string& why) {
  impl_->EndRound(why);
}
void Gateway::OnMessage(const core::KeyValue& message) {
  impl_->OnMessage(message);
}
void Gateway::OnMessage(const core::BarrierDone& message) {
  impl_->OnMessage(message);
}
void Gateway::OnMessage(const core::PlanReply& message) {
  impl_->OnMessage(message);
}
void Gateway::OnReady(Instant now) {
  impl_->OnReady(now);
}
int Gateway::poll_fd() const {
  return impl_->poll_fd();
}
std::optional<Instant> Gateway::deadline() const {
  return impl_->deadline();
}
std::optional<Gateway::Progress> Gateway::progress(std::int32_t local_rank) const {
  return impl_->progress(local_rank);
}

}  // namespace ddl
