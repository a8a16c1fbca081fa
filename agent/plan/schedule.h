// Warm-up, decay and the extent of training, in samples. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_SCHEDULE_H_
#define DDLAUNCH_AGENT_PLAN_SCHEDULE_H_

#include "absl/status/status.h"
#include "agent/plan/plan.h"

namespace ddl::plan {

// What is wrong whatever the batch. INVALID_ARGUMENT: out of range, one length said
// in two ways, or a number that another one needs is missing.
absl::Status CheckSchedule(const Request& request);

// Sets the schedule of `plan`, whose batch and rate are set. REQUIRES: CheckSchedule is
// content. INVALID_ARGUMENT: it does not go with the batch, the rate or the total.
absl::Status SolveSchedule(const Request& request, Plan& plan);

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_SCHEDULE_H_
