// PlanLines: what a node says of the training plan: the plan itself at the start of each
// round, what moved and what was held since the round before, and loudly where it is not
// what was asked for, or needs more of the program than ddlaunch can see. Pure; not thread safe.
#ifndef DDLAUNCH_LAUNCHER_PLAN_LINES_H_
#define DDLAUNCH_LAUNCHER_PLAN_LINES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/types.h"
#include "agent/plan/plan.h"

namespace ddl {

struct PlanLine {
  bool is_loud = false;
  std::string text;
};

class PlanLines {
 public:
  // `flags`: what this launcher was given.
  explicit PlanLines(const plan::Request& flags) : flags_(flags) {}

  // A round begins, with the plan that the launchers' flags make, if any.
  std::vector<PlanLine> OnStart(const core::RoundStart& start);
  // The plan that the program's defaults lead to, once for all ranks that ask.
  std::vector<PlanLine> OnAgreed(const core::PlanReply& reply);
  // A smaller micro-batch in the middle of a round. May be repeated.
  std::vector<PlanLine> OnChanged(const core::PlanChanged& changed);

 private:
  using Slot = std::optional<plan::Plan>;
  std::vector<PlanLine> Say(const plan::Plan& plan, const plan::Request& request, Slot& last);

  // Loudly, once: flags that do nothing, and shares that most programs do not know of.
  void SayWhatNeedsTheProgram(const core::RoundStart& start, std::vector<PlanLine>& lines);

  // Loudly, what the numbers do not show; not again while it stays the same.
  void SayWarnings(const plan::Request& request, const plan::Plan& plan,
                   std::vector<PlanLine>& lines);

  const plan::Request flags_;
  std::vector<std::string> said_warnings_;
  bool said_gaps_ = false;
  bool said_uneven_ = false;
  std::int64_t round_ = 0;
  std::int32_t revision_ = 0;  // in round_
  Slot in_force_;              // in round_
  // The last of each kind, whichever round it was in.
  Slot launchers_;
  Slot programs_;
  bool program_agreed_ = false;  // in round_
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PLAN_LINES_H_
