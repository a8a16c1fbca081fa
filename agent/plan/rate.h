// The learning rate and Adam's numbers after the actual global batch. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_RATE_H_
#define DDLAUNCH_AGENT_PLAN_RATE_H_

#include "absl/status/status.h"
#include "agent/plan/plan.h"

namespace ddl::plan {

// What is wrong whatever the batch. INVALID_ARGUMENT: out of range, or a number that
// another one needs is missing.
absl::Status CheckRate(const Request& request);

// Sets the rate and Adam's numbers of `plan`, whose batch is set. REQUIRES: CheckRate
// is content. INVALID_ARGUMENT: they have no meaning at this global batch.
absl::Status SolveRate(const Request& request, Plan& plan);

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_RATE_H_
