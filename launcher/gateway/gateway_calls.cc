// The workers' calls at the gateway: answered at once, or put to wait.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/wire/wire.h"
#include "launcher/gateway/gateway_impl.h"

namespace ddl {
namespace {

absl::Status CheckKey(const char* what, const std::string& key) {
  if (key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " is empty"));
  }
  return wire::CheckSize(what, key, limits::kMaxKeyBytes);
}

}  // namespace

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

void Gateway::Impl::Handle(const Call& call, const RegisterExchange& body) {
  const absl::Status status = CheckLocalRank(body.request->local_rank());
  if (status.ok()) {
    ddlaunch::v1::RegisterResponse& out = *body.response;
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

void Gateway::Impl::Handle(const Call& call, const PublishExchange& body) {
  absl::Status status = CheckKey("key", body.request->key());
  if (status.ok()) {
    status = wire::CheckSize("value", body.request->value(), limits::kMaxValueBytes);
  }
  if (!status.ok()) {
    call.Finish(status);
    return;
  }
  if (absl::Status limit = CheckRoomFor(body.request->key()); !limit.ok()) {
    call.Finish(limit);
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

void Gateway::Impl::Handle(const Call& call, const FetchExchange& body) {
  absl::Status status = CheckKey("key", body.request->key());
  if (status.ok()) {
    status = CheckRoomFor(body.request->key());
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
  key.waiting.push_back(call);
  if (!std::exchange(key.asked, true)) {
    send_(core::KeyWanted{{}, round_->round, body.request->key()});
  }
}

absl::Status Gateway::Impl::CheckRoomFor(const std::string& key) const {
  if (keys_.size() >= limits::kMaxKeysPerRound && !keys_.contains(key)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this round has ", keys_.size(), " keys already, the limit"));
  }
  return absl::OkStatus();
}

void Gateway::Impl::AnswerKey(const Call& call, const std::string& value) {
  if (const auto* fetch = std::get_if<FetchExchange>(&call.body)) {
    fetch->response->set_value(value);
    call.Finish(absl::OkStatus());
    return;
  }
  const auto& publish = std::get<PublishExchange>(call.body);
  if (publish.request->value() == value) {
    call.Finish(absl::OkStatus());
  } else {
    call.Finish(absl::AlreadyExistsError(
        absl::StrCat("key \"", publish.request->key(),
                     "\" was written before in this round with another value")));
  }
}

void Gateway::Impl::Handle(const Call& call, const BarrierExchange& body) {
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

void Gateway::Impl::Handle(const Call& call, const AgreePlanExchange& body) {
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
  const auto& body = std::get<AgreePlanExchange>(call.body);
  if (plan_.reply->plan.has_value()) {
    *body.response->mutable_plan() = wire::ToWire(*plan_.reply->plan);
    *body.response->mutable_request() = wire::ToWire(plan_.reply->plan_request);
    call.Finish(absl::OkStatus());
  } else {
    call.Finish(absl::FailedPreconditionError(plan_.reply->error));
  }
}

void Gateway::Impl::Handle(const Call& call, const MarkGroupExchange& body) {
  absl::Status status = CheckLocalRank(body.request->local_rank());
  if (status.ok()) {
    std::set<std::string>& groups = open_groups_[body.request->local_rank()];
    if (!body.request->open()) {
      groups.erase(body.request->name());
    } else if (body.request->name().size() > limits::kMaxKeyBytes ||
               groups.size() >= limits::kMaxGroupsPerWorker) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("local rank ", body.request->local_rank(), " is in ", groups.size(),
                       " groups; the limit is ", limits::kMaxGroupsPerWorker,
                       ", and that of a group's name ", limits::kMaxKeyBytes, " bytes"));
    } else {
      groups.insert(body.request->name());
    }
  }
  call.Finish(status);
}

void Gateway::Impl::Handle(const Call& call, const ReportProgressExchange& body) {
  const absl::Status status = CheckLocalRank(body.request->local_rank());
  if (status.ok()) {
    progress_[body.request->local_rank()] = {body.request->step(), body.request->total_steps(),
                                             body.request->samples_per_s()};
  }
  call.Finish(status);
}

}  // namespace ddl
