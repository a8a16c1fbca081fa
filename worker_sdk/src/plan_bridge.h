// Between the SDK's public plan and agent/plan, which holds the mathematics.
#ifndef DDLAUNCH_WORKER_SDK_SRC_PLAN_BRIDGE_H_
#define DDLAUNCH_WORKER_SDK_SRC_PLAN_BRIDGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/plan/plan.h"
#include "ddl/context.h"

namespace ddl::internal {

plan::Request ToCore(const PlanDefaults& defaults);
plan::Plan ToCore(const Plan& plan);
PlanDefaults FromCore(const plan::Request& request);
// With its hash.
Plan FromCore(const plan::Plan& plan);

// The largest micro-batch that the request allows, by a cap that was asked for or
// learnt; 0: any.
std::int64_t MaxMicroBatchSize(const plan::Request& request);

// What a plan from the agent must fulfil: this world, and micro-steps that make up
// the ranks' shares of the global batch. INTERNAL otherwise.
absl::Status CheckPlan(const Plan& plan, std::int64_t world_size);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_PLAN_BRIDGE_H_
