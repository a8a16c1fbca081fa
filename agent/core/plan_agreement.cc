// The one plan of a job, held across rounds.
#include "agent/core/plan_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"

namespace ddl::core {
namespace {

// What HoldGlobal replaces.
bool SameBatch(const plan::Request& a, const plan::Request& b) {
  return a.global_batch_size == b.global_batch_size && a.micro_batch_size == b.micro_batch_size &&
         a.max_micro_batch_size == b.max_micro_batch_size &&
         a.grad_accum_steps == b.grad_accum_steps;
}

std::string NameRequest(const plan::Request& request) {
  return request.empty() ? "nothing" : plan::Describe(request);
}

}  // namespace

PlanAgreement::PlanAgreement(const plan::Request& launcher, plan::BatchPolicy default_policy)
    : launcher_(launcher), default_policy_(default_policy) {}

plan::Request PlanAgreement::Hold(const plan::Request& request, const std::optional<Held>& held,
                                  std::int64_t world_size) {
  if (!held.has_value()) {
    return request;
  }
  // In the world it was made for, a plan is held by asking the same again.
  const bool is_the_first =
      held->plan.world_size == world_size &&
      (!held->recovered_from.has_value() || SameBatch(request, *held->recovered_from));
  return is_the_first ? request : plan::HoldGlobal(request, held->plan);
}

void PlanAgreement::AddLessons(plan::Request& request) const {
  request.learned_max_micro_batch_size = learned_cap_;
  request.uneven_micro_steps = uneven_micro_steps_ ? std::optional(true) : std::nullopt;
}

absl::StatusOr<PlanAgreement::Agreed> PlanAgreement::SolveFor(const plan::Request& request,
                                                              const std::optional<Held>& held,
                                                              std::int64_t world_size) const {
  Agreed agreed{std::nullopt, Hold(request, held, world_size)};
  if (!agreed.request.batch_policy.has_value()) {
    agreed.request.batch_policy = default_policy_;
  }
  AddLessons(agreed.request);
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
  AddLessons(agreed.request);
  return agreed;
}

void PlanAgreement::Forget() {
  world_size_ = 0;
  started_ = {};
  held_.reset();
  held_merged_.reset();
  proposal_.reset();
  learned_cap_.reset();
  uneven_micro_steps_ = false;
  recovered_round_ = 0;
}

void PlanAgreement::RoundStarted(const Agreed& agreed, std::int64_t world_size) {
  world_size_ = world_size;
  started_ = agreed;
  proposal_.reset();
  if (!held_.has_value() && agreed.plan.has_value()) {
    held_ = Held{*agreed.plan, std::nullopt};
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
      held_merged_ = Held{*answer->plan, std::nullopt};
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

void PlanAgreement::Learn(const plan::Request& lessons) {
  if (const auto cap = lessons.learned_max_micro_batch_size; cap.has_value()) {
    learned_cap_ = std::min(*cap, learned_cap_.value_or(*cap));
  }
  uneven_micro_steps_ = uneven_micro_steps_ || lessons.uneven_micro_steps.value_or(false);
}

absl::Status PlanAgreement::LowerMicroBatch(std::int64_t micro_batch_size, After after) {
  std::optional<Agreed> agreed = InForce();
  if (!agreed.has_value()) {
    return absl::FailedPreconditionError(
        "no plan is known here that could have a smaller micro-batch: give the batch to ddlaunch "
        "(--global-batch-size), or use a smaller one in the program");
  }
  if (after == After::kRetry) {
    agreed->request.uneven_micro_steps = true;
  }
  do {
    DDL_ASSIGN_OR_RETURN(const plan::Lowered lowered, plan::Lower(agreed->request, *agreed->plan));
    *agreed = Agreed{lowered.plan, lowered.request};
  } while (agreed->plan->micro_batch_size >= micro_batch_size);
  Learn(agreed->request);
  if (proposal_.has_value() && proposal_->answer.ok()) {
    proposal_->answer = *agreed;
  } else {
    started_ = *agreed;
  }
  return absl::OkStatus();
}

// ---- a restarted coordinator -----------------------------------------------------

absl::Status PlanAgreement::IsPossible(const LastPlan& last) {
  if (last.world_size != 0) {
    return plan::Solve(last.request, last.world_size).status();
  }
  plan::Request lesson;
  lesson.global_batch_size = 1;
  lesson.learned_max_micro_batch_size = last.request.learned_max_micro_batch_size;
  return plan::Solve(lesson, 1).status();
}

void PlanAgreement::Recover(const LastPlan& last, std::int64_t round) {
  Learn(last.request);
  if (last.world_size == 0 || world_size_ != 0 || round <= recovered_round_) {
    return;
  }
  auto plan = plan::Solve(last.request, last.world_size);
  if (!plan.ok()) {
    return;
  }
  recovered_round_ = round;
  // A request that was held already has what it was held by.
  plan->global_batch_size = last.request.global_batch_size.value_or(plan->global_batch_size);
  plan->micro_batch_size = last.request.max_micro_batch_size.value_or(plan->micro_batch_size);
  held_merged_ = Held{*plan, last.request};
  if (launcher_.has_batch()) {
    held_ = held_merged_;
  }
}

}  // namespace ddl::core
