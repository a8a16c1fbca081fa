// The worker gateway: its life, and what the coordinator answers.
#include "launcher/gateway/gateway.h"

#include <grpcpp/grpcpp.h>

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/wire/channel.h"
#include "launcher/gateway/gateway_impl.h"

namespace ddl {

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
  revision_.reset();
  reports_.clear();
  progress_.clear();
  open_groups_.clear();
}

void Gateway::Impl::Resend() {
  for (auto& [name, key] : keys_) {
    // Nobody waits any more: whoever comes next asks again.
    key.asked = !key.waiting.empty();
    for (const Call& call : key.waiting) {
      if (const auto* publish = std::get_if<PublishExchange>(&call.body)) {
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
  for (const Call& call : reports_) {
    SendReport(*std::get<ReportOutOfMemoryExchange>(call.body).request);
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
  fn(reports_, [] { return std::string("the coordinator has not answered with a smaller plan"); });
  fn(watchers_, [] { return std::string("the plan has not changed"); });
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

void Gateway::Impl::OnMessage(const core::PlanReply& message) {
  if (!CheckRound(message.round).ok()) {
    return;
  }
  plan_.reply = message;
  for (const Call& call : std::exchange(plan_.waiting, {})) {
    AnswerPlan(call);
  }
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(std::string job_id, std::string host,
                                                        SendFn send) {
  auto impl = std::make_unique<Impl>(std::move(job_id), std::move(host), std::move(send));
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
void Gateway::BeginRound(const core::RoundStart& round, const std::string& address) {
  impl_->BeginRound(round, address);
}
void Gateway::RemoveDirectory() {
  impl_->RemoveDirectory();
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
void Gateway::OnMessage(const core::PlanChanged& message) {
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
std::optional<std::string> Gateway::open_group(std::int32_t local_rank) const {
  return impl_->open_group(local_rank);
}
std::optional<MemoryReport> Gateway::out_of_memory(std::int32_t local_rank) const {
  return impl_->out_of_memory(local_rank);
}
std::optional<Gateway::Progress> Gateway::progress(std::int32_t local_rank) const {
  return impl_->progress(local_rank);
}

}  // namespace ddl
