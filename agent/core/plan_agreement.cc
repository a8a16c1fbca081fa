// The one plan of a job, held across rounds.
#include "agent/core/plan_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"

namespace ddl::core {
namespace {

plan::Request Held(const plan::Request& request, const std::optional<plan::Plan>& held,
                   std::int64_t world_size) {
  const bool changed = held.has_value() && held->world_size != world_size;
  return changed ? plan::HoldGlobal(request, *held) : request;
}

std::string NameRequest(const plan::Request& request) {
  return request.empty() ? "nothing" : plan::Describe(request);
}

}  // namespace

PlanAgreement::PlanAgreement(const plan::Request& launcher, plan::BatchPolicy default_policy)
    : launcher_(launcher), default_policy_(default_policy) {}

absl::StatusOr<PlanAgreement::Agreed> PlanAgreement::SolveFor(const plan::Request& request,
                                                              const std::optional<plan::Plan>& held,
                                                              std::int64_t world_size) const {
  Agreed agreed{std::nullopt, Held(request, held, world_size)};
  if (!agreed.request.batch_policy.has_value()) {
    agreed.request.batch_policy = default_policy_;
  }
  agreed.request.learned_max_micro_batch_size = learned_cap_;
  DDL_ASSIGN_OR_RETURN(agreed.plan, plan::Solve(agreed.request, world_size));
  return agreed;
}

absl::StatusOr<PlanAgreement::Agreed> PlanAgreement::ForWorld(std::int64_t world_size) const {
  if (launcher_.has_batch()) {
    auto whole = SolveFor(launcher_, held_, world_size);
    if (whole.ok()) {
      return whole;
    }
    // The rest may be the program's to give, such as the samples that a ratio is of.
    auto part = SolveFor(plan::WithoutGaps(launcher_), held_, world_size);
    return part.ok() ? part : whole;
  }
  Agreed agreed{std::nullopt, launcher_};
  // For the agents, which keep it for a coordinator that is restarted.
  agreed.request.learned_max_micro_batch_size = learned_cap_;
  return agreed;
}

void PlanAgreement::Forget() {
  world_size_ = 0;
  started_ = {};
  held_.reset();
  held_merged_.reset();
  proposal_.reset();
  learned_cap_.reset();
}

void PlanAgreement::RoundStarted(const Agreed& agreed, std::int64_t world_size) {
  world_size_ = world_size;
  started_ = agreed;
  proposal_.reset();
  if (!held_.has_value()) {
    held_ = agreed.plan;
  }
}

absl::StatusOr<PlanAgreement::Agreed> PlanAgreement::SolveMerged(
    const plan::Request& merged) const {
  if (!merged.has_batch()) {
    return absl::InvalidArgumentError(
        "no batch size was given, neither by flags nor by the program; give "
        "--global-batch-size or --micro-batch-size");
  }
  return SolveFor(merged, held_merged_, world_size_);
}

absl::StatusOr<plan::Plan> PlanAgreement::Propose(const std::string& host,
                                                  const plan::Request& program) {
  plan::Request merged = plan::Merge(launcher_, program);
  if (!proposal_.has_value()) {
    auto answer = SolveMerged(merged);
    if (answer.ok() && !held_merged_.has_value()) {
      held_merged_ = answer->plan;
    }
    proposal_.emplace(Proposal{host, program, merged, std::move(answer)});
  }
  if (proposal_->merged == merged) {
    DDL_RETURN_IF_ERROR(proposal_->answer.status());
    return *proposal_->answer->plan;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the program on host ", host, " asks for ", NameRequest(program),
                   ", but on host ", proposal_->host, " it asked for ",
                   NameRequest(proposal_->program), "; every node must ask for the same"));
}

// ---- out of memory ------------------------------------------------------------

std::optional<PlanAgreement::Agreed> PlanAgreement::InForce() const {
  if (proposal_.has_value() && proposal_->answer.ok()) {
    return *proposal_->answer;
  }
  return started_.plan.has_value() ? std::optional(started_) : std::nullopt;
}

void PlanAgreement::Learn(std::int64_t cap) {
  learned_cap_ = std::min(cap, learned_cap_.value_or(cap));
}

absl::Status PlanAgreement::LowerMicroBatch(std::int64_t micro_batch_size) {
  std::optional<Agreed> agreed = InForce();
  if (!agreed.has_value()) {
    return absl::FailedPreconditionError(
        "no plan is known here that could have a smaller micro-batch: give the batch to ddlaunch "
        "(--global-batch-size), or use a smaller one in the program");
  }
  do {
    DDL_ASSIGN_OR_RETURN(const plan::Lowered lowered, plan::Lower(agreed->request, *agreed->plan));
    *agreed = Agreed{lowered.plan, lowered.request};
  } while (agreed->plan->micro_batch_size >= micro_batch_size);
  Learn(*agreed->request.learned_max_micro_batch_size);
  if (proposal_.has_value() && proposal_->answer.ok()) {
    proposal_->answer = *agreed;
  } else {
    started_ = *agreed;
  }
  return absl::OkStatus();
}

}  // namespace ddl::core
