// PlanAgreement: which training plan a job's rounds run by.
//
// The launchers' request is the job's from its start; the program's defaults
// are proposed anew in each round. The global batch of the first round that
// started is held when the world changes, whichever of the two it came from.
// Not thread safe.
#ifndef DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_
#define DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "agent/plan/plan.h"

namespace ddl::core {

class PlanAgreement {
 public:
  explicit PlanAgreement(const plan::Request& launcher);

  struct Agreed {
    // Absent: the launchers gave no batch number. The program still may.
    std::optional<plan::Plan> plan;
    // What it was solved from.
    plan::Request request;
  };
  // What the launchers ask for, in a world of so many ranks. Errors:
  // INVALID_ARGUMENT from plan::Solve.
  [[nodiscard]] absl::StatusOr<Agreed> ForWorld(std::int64_t world_size) const;

  // A round with this plan started: hold its global batch from now on, and
  // forget what the program proposed in the last one.
  void RoundStarted(const Agreed& agreed, std::int64_t world_size);

  // The job begins anew: nothing is held.
  void Forget();

  // The program's defaults, in the round that started last. The first defines
  // the round's plan; whoever comes to the same request gets the same answer.
  // Errors: FAILED_PRECONDITION, another node proposed what leads to another
  // request; INVALID_ARGUMENT, nobody gave a batch size, or it cannot be solved.
  absl::StatusOr<plan::Plan> Propose(const std::string& host, const plan::Request& program);

 private:
  struct Proposal {
    std::string host;
    plan::Request program;
    plan::Request merged;
    absl::StatusOr<plan::Plan> answer;
  };
  [[nodiscard]] absl::StatusOr<plan::Plan> SolveMerged(const plan::Request& merged) const;

  const plan::Request launcher_;
  std::int64_t world_size_ = 0;            // of the round that started last
  std::optional<plan::Plan> held_;         // the first by the launchers alone
  std::optional<plan::Plan> held_merged_;  // the first with the program's defaults
  std::optional<Proposal> proposal_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_
