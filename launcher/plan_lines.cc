// The plan in words.
#include "launcher/plan_lines.h"

#include "absl/strings/str_cat.h"

namespace ddl {

std::vector<PlanLine> PlanLines::OnStart(const core::RoundStart& start) {
  round_ = start.round;
  revision_ = 0;
  in_force_.reset();
  program_agreed_ = false;
  return start.plan.has_value() ? Say(*start.plan, start.plan_request, launchers_)
                                : std::vector<PlanLine>();
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
  std::vector<PlanLine> lines = Say(*reply.plan, reply.plan_request, programs_);
  if (launchers_.has_value()) {
    lines.front().text += ", with what the program adds";  // often only another hash
  }
  return lines;
}

std::vector<PlanLine> PlanLines::OnChanged(const core::PlanChanged& changed) {
  if (changed.round != round_ || !changed.plan.has_value() || changed.revision <= revision_) {
    return {};
  }
  revision_ = changed.revision;
  in_force_ = changed.plan;
  (program_agreed_ ? programs_ : launchers_) = changed.plan;
  return {{true, changed.text},
          {false, absl::StrCat("plan: ", plan::Describe(*changed.plan), " [",
                               plan::Hash(*changed.plan), "]")}};
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
  last = in_force_ = plan;
  return lines;
}

}  // namespace ddl
