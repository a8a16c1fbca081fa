// The one plan of a job, held across rounds.
#include "agent/core/plan_agreement.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddl::core {
namespace {

// A rate, a cap or a warm-up alone makes no plan: the batch may still come from
// the program.
bool GivesBatch(const plan::Request& request) {
  return request.global_batch_size.has_value() || request.micro_batch_size.has_value() ||
         request.grad_accum_steps.has_value();
}

plan::Request Held(const plan::Request& request, const std::optional<plan::Plan>& held,
                   std::int64_t world_size) {
  const bool changed = held.has_value() && held->world_size != world_size;
  return changed ? plan::HoldGlobal(request, *held) : request;
}

std::string NameRequest(const plan::Request& request) {
  return request.empty() ? "nothing" : plan::Describe(request);
}

}  // namespace

PlanAgreement::PlanAgreement(const plan::Request& launcher) : launcher_(launcher) {}

absl::StatusOr<PlanAgreement::Agreed> PlanAgreement::ForWorld(std::int64_t world_size) const {
  Agreed agreed{std::nullopt, Held(launcher_, held_, world_size)};
  if (!GivesBatch(agreed.request)) {
    return agreed;
  }
  auto solved = plan::Solve(agreed.request, world_size);
  if (!solved.ok()) {
    return solved.status();
  }
  agreed.plan = *std::move(solved);
  return agreed;
}

void PlanAgreement::Forget() {
  world_size_ = 0;
  held_.reset();
  held_merged_.reset();
  proposal_.reset();
}

void PlanAgreement::RoundStarted(const Agreed& agreed, std::int64_t world_size) {
  world_size_ = world_size;
  proposal_.reset();
  if (!held_.has_value()) {
    held_ = agreed.plan;
  }
}

absl::StatusOr<plan::Plan> PlanAgreement::SolveMerged(const plan::Request& merged) const {
  if (!GivesBatch(merged)) {
    return absl::InvalidArgumentError(
        "no batch size was given, neither by flags nor by the program; give "
        "--global-batch-size or --micro-batch-size");
  }
  return plan::Solve(Held(merged, held_merged_, world_size_), world_size_);
}

absl::StatusOr<plan::Plan> PlanAgreement::Propose(const std::string& host,
                                                  const plan::Request& program) {
  plan::Request merged = plan::Merge(launcher_, program);
  if (!proposal_.has_value()) {
    auto answer = SolveMerged(merged);
    if (answer.ok() && !held_merged_.has_value()) {
      held_merged_ = *answer;
    }
    proposal_.emplace(Proposal{host, program, merged, std::move(answer)});
    return proposal_->answer;
  }
  if (proposal_->merged == merged) {
    return proposal_->answer;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the program on host ", host, " asks for ", NameRequest(program),
                   ", but on host ", proposal_->host, " it asked for ",
                   NameRequest(proposal_->program), "; every node must ask for the same"));
}

}  // namespace ddl::core
