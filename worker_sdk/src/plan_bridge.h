// Between the SDK's public plan and agent/plan, which holds the mathematics.
#ifndef DDLAUNCH_WORKER_SDK_SRC_PLAN_BRIDGE_H_
#define DDLAUNCH_WORKER_SDK_SRC_PLAN_BRIDGE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/context.h"

namespace ddl::internal {

// Solves for a world without a launcher; the hash is set.
absl::StatusOr<Plan> SolvePlan(const PlanDefaults& defaults, std::int64_t world_size);

// What a plan from the agent must fulfil: this world, the identity, and a hash
// that this process reproduces. INTERNAL otherwise.
absl::Status CheckPlan(const Plan& plan, std::int64_t world_size);

std::string HashOf(const Plan& plan);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_PLAN_BRIDGE_H_
