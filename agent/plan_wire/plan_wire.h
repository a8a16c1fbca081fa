// Between the plan's messages (proto/ddlaunch/v1/plan.proto) and agent/plan's
// values. Numbers are carried as they are: plan::Solve judges a request, and a
// plan's hash its numbers. Pure functions; thread safe.
#ifndef DDLAUNCH_AGENT_PLAN_WIRE_PLAN_WIRE_H_
#define DDLAUNCH_AGENT_PLAN_WIRE_PLAN_WIRE_H_

#include "absl/status/statusor.h"
#include "agent/plan/plan.h"

namespace ddlaunch::v1 {
class Plan;
class PlanRequest;
}  // namespace ddlaunch::v1

namespace ddl::wire {

plan::Request FromWire(const ddlaunch::v1::PlanRequest& request);
ddlaunch::v1::PlanRequest ToWire(const plan::Request& request);

plan::Plan FromWire(const ddlaunch::v1::Plan& plan);
// With its hash.
ddlaunch::v1::Plan ToWire(const plan::Plan& plan);

// The plan of a message, refused when its hash is not that of its numbers.
// Errors: INVALID_ARGUMENT, with both.
absl::StatusOr<plan::Plan> CheckedPlan(const ddlaunch::v1::Plan& plan);

}  // namespace ddl::wire

#endif  // DDLAUNCH_AGENT_PLAN_WIRE_PLAN_WIRE_H_
