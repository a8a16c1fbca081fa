// Conversion between ddl::Plan and ddl::plan::Plan, and the checks on the way.
#include "worker_sdk/src/plan_bridge.h"

#include "agent/base/status_macros.h"
#include "agent/plan/plan.h"

namespace ddl {
namespace {

plan::Plan ToCore(const Plan& plan) {
  plan::Plan core;
  core.world_size = plan.world_size;
  core.global_batch_size = plan.global_batch_size;
  core.micro_batch_size = plan.micro_batch_size;
  core.grad_accum_steps = plan.grad_accum_steps;
  core.learning_rate = plan.learning_rate;
  core.warmup_steps = plan.warmup_steps;
  return core;
}

plan::Request ToCore(const PlanDefaults& defaults) {
  plan::Request request;
  request.global_batch_size = defaults.global_batch_size;
  request.micro_batch_size = defaults.micro_batch_size;
  request.max_micro_batch_size = defaults.max_micro_batch_size;
  request.grad_accum_steps = defaults.grad_accum_steps;
  request.base_lr = defaults.base_lr;
  request.base_batch_size = defaults.base_batch_size;
  request.warmup_steps = defaults.warmup_steps;
  if (defaults.lr_scaling.has_value()) {
    switch (*defaults.lr_scaling) {
      case LrScaling::kNone:
        request.lr_scaling = plan::LrScaling::kNone;
        break;
      case LrScaling::kLinear:
        request.lr_scaling = plan::LrScaling::kLinear;
        break;
      case LrScaling::kSqrt:
        request.lr_scaling = plan::LrScaling::kSqrt;
        break;
    }
  }
  return request;
}

// Whether global = micro x accumulation x world, without overflow.
bool IdentityHolds(const Plan& plan) {
  std::int64_t product = 0;
  return plan.micro_batch_size > 0 && plan.grad_accum_steps > 0 && plan.world_size > 0 &&
         !__builtin_mul_overflow(plan.micro_batch_size, plan.grad_accum_steps, &product) &&
         !__builtin_mul_overflow(product, plan.world_size, &product) &&
         product == plan.global_batch_size;
}

}  // namespace

std::string Plan::ToString() const {
  return plan::Describe(ToCore(*this));
}

namespace internal {

absl::StatusOr<Plan> SolvePlan(const PlanDefaults& defaults, std::int64_t world_size) {
  DDL_ASSIGN_OR_RETURN(const plan::Plan core, plan::Solve(ToCore(defaults), world_size));
  Plan plan;
  plan.world_size = core.world_size;
  plan.global_batch_size = core.global_batch_size;
  plan.micro_batch_size = core.micro_batch_size;
  plan.grad_accum_steps = core.grad_accum_steps;
  plan.learning_rate = core.learning_rate;
  plan.warmup_steps = core.warmup_steps;
  plan.hash = plan::Hash(core);
  return plan;
}

absl::Status CheckPlan(const Plan& plan, std::int64_t world_size) {
  if (plan.world_size != world_size) {
    return absl::InternalError("the agent's plan (" + plan.ToString() + ") is for a world of " +
                               std::to_string(plan.world_size) + ", this one has " +
                               std::to_string(world_size) + " ranks");
  }
  if (!IdentityHolds(plan)) {
    return absl::InternalError("the agent's plan does not multiply out: " + plan.ToString());
  }
  if (const std::string hash = HashOf(plan); hash != plan.hash) {
    return absl::InternalError("the agent's plan (" + plan.ToString() + ") has the hash " +
                               plan.hash + ", this worker computes " + hash +
                               "; are ddlaunch and the program built from the same release?");
  }
  return absl::OkStatus();
}

std::string HashOf(const Plan& plan) {
  return plan::Hash(ToCore(plan));
}

}  // namespace internal
}  // namespace ddl
