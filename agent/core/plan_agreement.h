// PlanAgreement: which training plan a job's rounds run by.
//
// The launchers' request is the job's from its start; the program's defaults
// are proposed anew in each round. The global batch of the first round that
// started is held when the world changes, whichever of the two it came from.
//
// A micro-batch that did not fit into a device's memory is a lesson for the whole
// job: no plan has so large a one again.
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
  // `default_policy` holds where neither the launchers nor the program give one.
  PlanAgreement(const plan::Request& launcher, plan::BatchPolicy default_policy);

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

  // The job begins anew: nothing is held, nothing was learnt.
  void Forget();

  // The program's defaults, in the round that started last. The first defines
  // the round's plan; whoever comes to the same request gets the same answer.
  // Errors: FAILED_PRECONDITION, another node proposed what leads to another
  // request; INVALID_ARGUMENT, nobody gave a batch size, or it cannot be solved.
  absl::StatusOr<plan::Plan> Propose(const std::string& host, const plan::Request& program);

  // What the ranks of the round that started last go by: the program's plan once it
  // was agreed, else the launchers'. Nothing: neither is there.
  [[nodiscard]] std::optional<Agreed> InForce() const;

  // A micro-step of so many samples ran out of memory: halves the micro-batch of
  // the plan in force until it is smaller, for the whole job; nothing else of the
  // plan changes. REQUIRES: micro_batch_size is 1 or more. Errors: FAILED_PRECONDITION, there is no
  // plan, or its micro-batch is at its floor; the text says what is left to do.
  absl::Status LowerMicroBatch(std::int64_t micro_batch_size);

  // No micro-batch above `cap` has fitted; another coordinator learnt that.
  void Learn(std::int64_t cap);

 private:
  struct Proposal {
    std::string host;
    plan::Request program;
    plan::Request merged;
    absl::StatusOr<Agreed> answer;
  };
  // What `request` comes to in a world, once the global batch of `held` and the
  // lesson are heeded.
  [[nodiscard]] absl::StatusOr<Agreed> SolveFor(const plan::Request& request,
                                                const std::optional<plan::Plan>& held,
                                                std::int64_t world_size) const;
  [[nodiscard]] absl::StatusOr<Agreed> SolveMerged(const plan::Request& merged) const;

  const plan::Request launcher_;
  const plan::BatchPolicy default_policy_;
  std::optional<std::int64_t> learned_cap_;
  std::int64_t world_size_ = 0;            // of the round that started last
  Agreed started_;                         // by the launchers alone, for that round
  std::optional<plan::Plan> held_;         // the first by the launchers alone
  std::optional<plan::Plan> held_merged_;  // the first with the program's defaults
  std::optional<Proposal> proposal_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_
