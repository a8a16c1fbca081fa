// PlanAgreement: which training plan a job's rounds run by.
//
// The launchers' request is the job's from its start; the program's defaults
// are proposed anew in each round. The global batch of the first round that
// started is held when the world changes, whichever of the two it came from.
//
// A micro-batch that did not fit into a device's memory is a lesson for the whole
// job: no plan has so large a one again.
//
// Agents remember the last plan they were told of; a coordinator that is restarted
// holds by their word what was held.
// Not thread safe.
#ifndef DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_
#define DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "agent/core/types.h"
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

  // Whether the program that ran out of memory ended, or does the step again. One that
  // does uses the SDK's RunStep, which can split any share: from then on the micro-steps
  // of a rank need not be equal.
  enum class After : std::uint8_t { kExit, kRetry };

  // A micro-step of so many samples ran out of memory: halves the micro-batch of
  // the plan in force until it is smaller, for the whole job; nothing else of the
  // plan changes. REQUIRES: micro_batch_size is 1 or more. Errors: FAILED_PRECONDITION, there is no
  // plan, or its micro-batch is at its floor; the text says what is left to do.
  absl::Status LowerMicroBatch(std::int64_t micro_batch_size, After after);

  // What another coordinator held and learnt, of which an agent of its round `round`
  // tells. The global batch of the latest round is held, unless a round has started
  // here. REQUIRES: IsPossible(last).
  void Recover(const LastPlan& last, std::int64_t round);
  // Errors: INVALID_ARGUMENT, a plan or a lesson that cannot be.
  static absl::Status IsPossible(const LastPlan& last);

 private:
  struct Proposal {
    std::string host;
    plan::Request program;
    plan::Request merged;
    absl::StatusOr<Agreed> answer;
  };
  // The first plan of its kind, whose global batch is held.
  struct Held {
    plan::Plan plan;
    // Told by an agent: what its plan was solved from, perhaps held itself.
    std::optional<plan::Request> recovered_from;
  };
  [[nodiscard]] static plan::Request Hold(const plan::Request& request,
                                          const std::optional<Held>& held, std::int64_t world_size);
  // What `request` comes to in a world, once the global batch of `held` and the
  // lesson are heeded.
  [[nodiscard]] absl::StatusOr<Agreed> SolveFor(const plan::Request& request,
                                                const std::optional<Held>& held,
                                                std::int64_t world_size) const;
  void AddLessons(plan::Request& request) const;
  void Learn(const plan::Request& lessons);
  [[nodiscard]] absl::StatusOr<Agreed> SolveMerged(const plan::Request& merged) const;

  const plan::Request launcher_;
  const plan::BatchPolicy default_policy_;
  std::optional<std::int64_t> learned_cap_;
  bool uneven_micro_steps_ = false;
  std::int64_t recovered_round_ = 0;  // whose plan is held; 0: none was told of
  std::int64_t world_size_ = 0;       // of the round that started last; 0: none has
  Agreed started_;                    // by the launchers alone, for that round
  std::optional<Held> held_;          // the first by the launchers alone
  std::optional<Held> held_merged_;   // the first with the program's defaults
  std::optional<Proposal> proposal_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_PLAN_AGREEMENT_H_
