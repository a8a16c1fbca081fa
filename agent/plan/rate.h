// The learning rate and Adam's numbers after the actual global batch. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_RATE_H_
#define DDLAUNCH_AGENT_PLAN_RATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "agent/plan/batch.h"
#include "agent/plan/plan.h"

namespace ddl::plan {

// What is wrong whatever the batch. INVALID_ARGUMENT: out of range, or a number that
// another one needs is missing.
absl::Status CheckRate(const Request& request);

// `batch`, or where Adam's numbers have no meaning at it, though they have at the one
// asked for: kNearest's next one below at which they do. REQUIRES: as for SolveRate.
Batch WithinAdam(const Request& request, const Batch& batch, std::int64_t world);

// Sets the rate and Adam's numbers of `plan`, whose batch is set. REQUIRES: CheckRate
// is content. INVALID_ARGUMENT: they have no meaning at this global batch.
absl::Status SolveRate(const Request& request, Plan& plan);

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_RATE_H_
