// Job, out of device memory: one rank says that its micro-batch was too large, and
// every member of the round goes on with a smaller one. It comes over the sessions,
// as the collective that the others sit in cannot carry it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "agent/core/job.h"

namespace ddl::core {
namespace {

PlanChanged Refusal(const OutOfMemory& report, const absl::Status& status) {
  PlanChanged refused;
  refused.round = report.round;
  refused.step = report.step;
  refused.rank = report.rank;
  refused.error = std::string(status.message());
  return refused;
}

// "rank 3 on host b ran out of device memory with micro-batch 8 in step 120 (...)"
std::string Describe(const OutOfMemory& report, const Member& member) {
  return absl::StrCat("rank ", report.rank, " on host ", member.host,
                      " ran out of device memory with micro-batch ", report.micro_batch_size,
                      " in step ", report.step,
                      report.text.empty() ? "" : absl::StrCat(" (", report.text, ")"));
}

}  // namespace

void Job::On(Turn& turn, const OutOfMemory& report) {
  const Member* const member = HearRunning(turn, report.agent, report.round, "out of memory");
  if (member == nullptr) {
    return;
  }
  const bool is_own =
      report.rank >= member->first_rank && report.rank - member->first_rank < member->nproc;
  if (!is_own || report.micro_batch_size < 1 || report.step < 0) {
    const absl::Status bad = absl::InvalidArgumentError(
        absl::StrCat("host ", member->host, " says that rank ", report.rank,
                     " ran out of memory with micro-batch ", report.micro_batch_size, " in step ",
                     report.step, "; that cannot be"));
    Say(turn, Reason::kInvalid, std::string(bad.message()));
    Tell(turn, report.agent, Refusal(report, bad));
    return;
  }
  const auto in_force = plan_.InForce();
  if (in_force.has_value() && report.micro_batch_size > in_force->plan->micro_batch_size) {
    // Another rank said it before: this one has not heard of it yet.
    PlanChanged answer = round_->revision.value_or(PlanChanged{});
    answer.round = round_->number;
    answer.plan = in_force->plan;
    answer.plan_request = in_force->request;
    if (!round_->revision.has_value()) {
      answer.step = report.step;
      answer.rank = report.rank;
    }
    Tell(turn, report.agent, std::move(answer));
    return;
  }
  RevisePlan(turn, *member, report);
}

void Job::RevisePlan(Turn& turn, const Member& member, const OutOfMemory& report) {
  const auto before = plan_.InForce();
  const absl::Status lowered =
      plan_.LowerMicroBatch(report.micro_batch_size, PlanAgreement::After::kRetry);
  if (!lowered.ok()) {
    Say(turn, Reason::kOutOfMemory,
        absl::StrCat(Describe(report, member), ": ", lowered.message()));
    Tell(turn, report.agent, Refusal(report, lowered));
    return;
  }
  if (!round_->revision.has_value()) {
    round_->unrevised = before->plan;
  }
  const PlanAgreement::Agreed now = *plan_.InForce();
  PlanChanged changed;
  changed.round = round_->number;
  changed.revision = round_->revision.has_value() ? round_->revision->revision + 1 : 1;
  changed.plan = now.plan;
  changed.plan_request = now.request;
  changed.step = report.step;
  changed.rank = report.rank;
  changed.text = absl::StrCat(Describe(report, member),
                              "; from that step on: ", plan::Changes(*before->plan, *now.plan));
  Say(turn, Reason::kOutOfMemory, changed.text);
  for (const Member& other : round_->members) {
    if (agents_.contains(other.agent.incarnation)) {  // some may have finished and left
      Tell(turn, other.agent, changed);
    }
  }
  round_->revision = std::move(changed);
}

absl::StatusOr<std::string> Job::LearnFromFailure(const WorkerFailure& failure) {
  if (!round_->lesson.empty()) {
    return round_->lesson;
  }
  const auto in_force = plan_.InForce();
  const std::int64_t now = in_force.has_value() ? in_force->plan->micro_batch_size : 1;
  // Where it does not say, it tried what the round started with.
  const std::int64_t started =
      round_->unrevised.has_value() ? round_->unrevised->micro_batch_size : now;
  const std::int64_t failed = failure.micro_batch_size > 0 ? failure.micro_batch_size : started;
  // A peer's report may have lowered it in this round. That ends a round so only as
  // often as there is something to lower.
  const bool is_learnt = round_->unrevised.has_value() && now < failed;
  if (!is_learnt) {
    DDL_RETURN_IF_ERROR(plan_.LowerMicroBatch(std::min(failed, now), PlanAgreement::After::kExit));
  }
  round_->lesson =
      plan::Changes(round_->unrevised.value_or(*in_force->plan), *plan_.InForce()->plan);
  return round_->lesson;
}

}  // namespace ddl::core
