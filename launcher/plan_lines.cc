// The plan in words.
#include "launcher/plan_lines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddl {
namespace {

std::string Steps(std::int64_t count) {
  return absl::StrCat(count, count == 1 ? " step" : " steps");
}

// "learning rate 0.1, warm-up 30 steps, 1000 steps in all": what `plan` has and
// `before` has not, or has otherwise.
std::string Added(const plan::Plan& before, const plan::Plan& plan) {
  std::vector<std::string> parts;
  if (plan.learning_rate.has_value() && plan.learning_rate != before.learning_rate) {
    parts.push_back(absl::StrCat("learning rate ", *plan.learning_rate));
  }
  if (plan.warmup_steps != before.warmup_steps || plan.warmup_start_lr != before.warmup_start_lr) {
    parts.push_back(
        absl::StrCat("warm-up ", Steps(plan.warmup_steps),
                     plan.warmup_start_lr > 0 ? absl::StrCat(" from ", plan.warmup_start_lr) : ""));
  }
  if (plan.total_samples != before.total_samples) {
    parts.push_back(absl::StrCat(Steps(plan.total_steps), " in all"));
  }
  if (plan.lr_decay != before.lr_decay || plan.lr_decay_samples != before.lr_decay_samples ||
      plan.lr_decay_factor != before.lr_decay_factor) {
    parts.push_back(absl::StrCat("decay ", plan::ToString(plan.lr_decay)));
  }
  if (plan.adam != before.adam) {
    parts.emplace_back("Adam's numbers");
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::vector<PlanLine> PlanLines::OnStart(const core::RoundStart& start) {
  round_ = start.round;
  revision_ = 0;
  in_force_.reset();
  program_agreed_ = false;
  std::vector<PlanLine> lines;
  if (start.plan.has_value()) {
    lines = Say(*start.plan, start.plan_request, launchers_);
  }
  SayWhatNeedsTheProgram(start, lines);
  return lines;
}

void PlanLines::SayWhatNeedsTheProgram(const core::RoundStart& start,
                                       std::vector<PlanLine>& lines) {
  const auto gaps =
      plan::NotInForce(flags_, start.plan.has_value() ? start.plan_request : plan::Request());
  if (!gaps.empty() && !std::exchange(said_gaps_, true)) {
    lines.push_back({true, absl::StrCat("plan: not in force until the program gives what is "
                                        "missing, through the SDK: ",
                                        absl::StrJoin(gaps, "; "))});
  }
  const bool is_uneven =
      start.plan.has_value() && start.plan->global_batch_size % start.plan->world_size != 0;
  if (is_uneven && !std::exchange(said_uneven_, true)) {
    lines.push_back({true,
                     "plan: the shares are uneven, which a program without the SDK must know: a "
                     "rank takes DDL_RANK_BATCH_SIZE samples a step, and its gradients count by "
                     "them; Accelerate gets no accumulation"});
  }
}

std::vector<PlanLine> PlanLines::OnAgreed(const core::PlanReply& reply) {
  if (reply.round != round_ || !reply.plan.has_value()) {
    return {};
  }
  program_agreed_ = true;
  if (in_force_ == reply.plan) {
    programs_ = reply.plan;
    return {};
  }
  const std::string added = in_force_.has_value() ? Added(*in_force_, *reply.plan) : std::string();
  std::vector<PlanLine> lines = Say(*reply.plan, reply.plan_request, programs_);
  if (!added.empty()) {
    lines.front().text += ", with what the program adds: " + added;
  }
  return lines;
}

std::vector<PlanLine> PlanLines::OnChanged(const core::PlanChanged& changed) {
  if (changed.round != round_ || !changed.plan.has_value() || changed.revision <= revision_) {
    return {};
  }
  revision_ = changed.revision;
  in_force_ = changed.plan;
  // Both kinds are split so from now on; the global batch is what it was.
  for (Slot* const slot : {&launchers_, &programs_}) {
    if (slot->has_value() && (*slot)->global_batch_size == changed.plan->global_batch_size) {
      (*slot)->micro_batch_size = changed.plan->micro_batch_size;
      (*slot)->grad_accum_steps = changed.plan->grad_accum_steps;
    }
  }
  (program_agreed_ ? programs_ : launchers_) = changed.plan;
  std::vector<PlanLine> lines = {{true, changed.text},
                                 {false, absl::StrCat("plan: ", plan::Describe(*changed.plan), " [",
                                                      plan::Hash(*changed.plan), "]")}};
  SayWarnings(changed.plan_request, *changed.plan, lines);
  return lines;
}

void PlanLines::SayWarnings(const plan::Request& request, const plan::Plan& plan,
                            std::vector<PlanLine>& lines) {
  std::vector<std::string> warnings = plan::Warnings(request, plan);
  for (const std::string& warning : warnings) {
    if (std::find(said_warnings_.begin(), said_warnings_.end(), warning) == said_warnings_.end()) {
      lines.push_back({true, warning});
    }
  }
  said_warnings_ = std::move(warnings);
}

std::vector<PlanLine> PlanLines::Say(const plan::Plan& plan, const plan::Request& request,
                                     Slot& last) {
  std::vector<PlanLine> lines = {
      {false, absl::StrCat("plan: ", plan::Describe(plan), " [", plan::Hash(plan), "]")}};
  if (last.has_value() && *last != plan) {
    lines.push_back(
        {false, absl::StrCat("plan: since the last round: ", plan::Changes(*last, plan))});
  }
  if (std::string loud = plan::Compare(request, plan); !loud.empty()) {
    lines.push_back({true, std::move(loud)});
  }
  SayWarnings(request, plan, lines);
  last = in_force_ = plan;
  return lines;
}

}  // namespace ddl
