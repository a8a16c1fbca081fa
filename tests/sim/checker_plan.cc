// The invariants of the plan: one for all ranks of a round, and what lack of memory may
// do to it: a smaller micro-batch, never a larger one again, the same for all.
#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"
#include "tests/sim/text.h"

namespace ddl::sim {
namespace {

// Each halves a micro-batch that is small from the start.
constexpr int kMaxMemoryStops = 10;

std::string Name(NodeId node) {
  return absl::StrCat("n", node);
}

}  // namespace

void Checker::CheckCap(const Job& job, const plan::Plan& plan) {
  if (job.cap.has_value() && plan.micro_batch_size > *job.cap) {
    Fail(absl::StrCat("a micro-batch of ", plan.micro_batch_size, " after one above ", *job.cap,
                      " did not fit"));
  }
}

void Checker::NotePlanOfRound(Job& job, const core::RoundStart& start) {
  if (job.stops_for_memory && ++job.num_memory_stops > kMaxMemoryStops) {
    Fail("restarts for lack of memory without end");
  }
  job.revision = 0;
  job.stops_for_memory = false;
  job.learnt = false;
  job.in_force = start.plan;
  job.in_force_request = start.plan_request;
  if (start.plan.has_value()) {
    CheckCap(job, *start.plan);
  }
}

void Checker::CheckPlanReply(NodeId to, Job& job, const core::PlanReply& reply) {
  if (job.plan.has_value() && !(job.plan->plan == reply.plan)) {
    Fail(absl::StrCat(Name(to), " got another plan than its peers"));
  }
  job.plan = reply;
  if (reply.plan.has_value()) {
    CheckCap(job, *reply.plan);
    job.in_force = reply.plan;
    job.in_force_request = reply.plan_request;
  }
}

void Checker::CheckPlanChanged(const Step& step, NodeId to, Job& job,
                               const core::PlanChanged& changed) {
  if (changed.round != job.round || !IsMember(job, to)) {
    Fail(absl::StrCat(Name(to), " is told of a change of a plan that is not its own"));
    return;
  }
  if (!changed.plan.has_value()) {
    const auto* const report = std::get_if<core::OutOfMemory>(&step.event);
    if (report == nullptr || to != step.sender || changed.error.empty()) {
      Fail(absl::StrCat(Name(to), " is refused a smaller plan, but did not ask"));
    }
    return;
  }
  if (changed.revision == job.revision + 1) {
    CheckRevision(step, job, changed);
  }
  if (changed.revision != job.revision || changed.plan != job.in_force) {
    Fail(absl::StrCat(Name(to), " is told of another revision of the plan than its peers"));
  }
}

void Checker::CheckRevision(const Step& step, Job& job, const core::PlanChanged& changed) {
  const plan::Plan& now = *changed.plan;
  if (!job.in_force.has_value() || now.micro_batch_size >= job.in_force->micro_batch_size ||
      now.global_batch_size != job.in_force->global_batch_size ||
      now.world_size != job.in_force->world_size) {
    Fail("out of memory changed more of the plan than micro-batch and accumulation");
  }
  for (const auto& [node, start] : job.members) {
    const bool told = std::any_of(
        step.effects.begin(), step.effects.end(), [node = node, &changed](const auto& effect) {
          const auto* const reply = std::get_if<core::Reply>(&effect);
          const auto* const other =
              reply == nullptr ? nullptr : std::get_if<core::PlanChanged>(&reply->message);
          return other != nullptr && NodeOfRef(reply->agent) == node &&
                 other->revision == changed.revision && other->plan == changed.plan;
        });
    if (!told && !At(node).gone) {
      Fail(absl::StrCat(Name(node), " is not told of the plan's revision"));
    }
  }
  if (job.revision == 0) {
    job.unrevised_micro = job.in_force->micro_batch_size;
  }
  job.revision = changed.revision;
  job.in_force = changed.plan;
  job.in_force_request = changed.plan_request;
  const std::int64_t learnt = changed.plan_request.learned_max_micro_batch_size.value_or(0);
  job.cap = std::min(learnt, job.cap.value_or(learnt));
  if (job.plan.has_value() && job.plan->plan.has_value()) {
    job.plan->plan = changed.plan;
  }
}

// The round's root cause is now another: is it lack of memory, and what is left?
void Checker::NoteMemoryFailure(Job& job) {
  job.stops_for_memory = false;
  if (!job.cause->out_of_memory || !job.in_force.has_value()) {
    return;
  }
  const std::int64_t now = job.in_force->micro_batch_size;
  const std::int64_t started = job.revision > 0 ? job.unrevised_micro : now;
  const std::int64_t failed =
      job.cause->micro_batch_size > 0 ? job.cause->micro_batch_size : started;
  job.learnt = job.learnt || (job.revision > 0 && now < failed);
  const auto lowered = plan::Lower(job.in_force_request, *job.in_force);
  job.stops_for_memory = job.learnt || lowered.ok();
  if (!job.learnt && lowered.ok()) {
    const std::int64_t learnt = *lowered->request.learned_max_micro_batch_size;
    job.cap = std::min(learnt, job.cap.value_or(learnt));
    job.learnt = true;
  }
}

}  // namespace ddl::sim
