// Conversion between ddl::Plan and ddl::plan::Plan, and the checks on the way.
#include "worker_sdk/src/plan_bridge.h"

#include <optional>
#include <string>

#include "agent/base/status_macros.h"

namespace ddl {
namespace {

// The enumerations are the same on both sides, value by value.
static_assert(static_cast<int>(plan::LrScaling::kSqrt) == static_cast<int>(LrScaling::kSqrt));
static_assert(static_cast<int>(plan::BatchPolicy::kExact) == static_cast<int>(BatchPolicy::kExact));
static_assert(static_cast<int>(plan::LrDecay::kLinear) == static_cast<int>(LrDecay::kLinear));

template <typename To, typename From>
std::optional<To> Same(std::optional<From> word) {
  return word.has_value() ? std::optional(static_cast<To>(*word)) : std::nullopt;
}

// Fields of the same name and type.
template <typename To, typename From>
void CopyRequest(const From& from, To& to) {
  to.global_batch_size = from.global_batch_size;
  to.micro_batch_size = from.micro_batch_size;
  to.max_micro_batch_size = from.max_micro_batch_size;
  to.min_micro_batch_size = from.min_micro_batch_size;
  to.grad_accum_steps = from.grad_accum_steps;
  to.base_lr = from.base_lr;
  to.base_batch_size = from.base_batch_size;
  to.total_samples = from.total_samples;
  to.epoch_samples = from.epoch_samples;
  to.warmup_steps = from.warmup_steps;
  to.warmup_ratio = from.warmup_ratio;
  to.warmup_epochs = from.warmup_epochs;
  to.warmup_start_lr = from.warmup_start_lr;
  to.lr_decay_steps = from.lr_decay_steps;
  to.lr_decay_epochs = from.lr_decay_epochs;
  to.lr_decay_factor = from.lr_decay_factor;
  to.adam_beta1 = from.adam_beta1;
  to.adam_beta2 = from.adam_beta2;
  to.adam_eps = from.adam_eps;
  to.scale_adam = from.scale_adam;
}

template <typename To, typename From>
void CopyPlan(const From& from, To& to) {
  to.world_size = from.world_size;
  to.global_batch_size = from.global_batch_size;
  to.micro_batch_size = from.micro_batch_size;
  to.grad_accum_steps = from.grad_accum_steps;
  to.learning_rate = from.learning_rate;
  to.warmup_samples = from.warmup_samples;
  to.warmup_steps = from.warmup_steps;
  to.warmup_start_lr = from.warmup_start_lr;
  to.total_samples = from.total_samples;
  to.total_steps = from.total_steps;
  to.lr_decay_samples = from.lr_decay_samples;
  to.lr_decay_factor = from.lr_decay_factor;
  if (from.adam.has_value()) {
    to.adam = {from.adam->beta1, from.adam->beta2, from.adam->eps};
  }
}

// Whether micro x accumulation x world, of no overflow, is enough for the global
// batch, and no whole micro-step more than it.
bool SharesCover(const Plan& plan) {
  std::int64_t product = 0;
  return plan.micro_batch_size > 0 && plan.grad_accum_steps > 0 && plan.world_size > 0 &&
         plan.global_batch_size > 0 &&
         !__builtin_mul_overflow(plan.micro_batch_size, plan.grad_accum_steps, &product) &&
         !__builtin_mul_overflow(product, plan.world_size, &product) &&
         product >= plan.global_batch_size;
}

}  // namespace

std::string Plan::ToString() const {
  return plan::Describe(internal::ToCore(*this));
}

namespace internal {

plan::Request ToCore(const PlanDefaults& from) {
  plan::Request to;
  CopyRequest(from, to);
  to.batch_policy = Same<plan::BatchPolicy>(from.batch_policy);
  to.lr_scaling = Same<plan::LrScaling>(from.lr_scaling);
  to.lr_decay = Same<plan::LrDecay>(from.lr_decay);
  return to;
}

PlanDefaults FromCore(const plan::Request& from) {
  PlanDefaults to;
  CopyRequest(from, to);
  to.batch_policy = Same<BatchPolicy>(from.batch_policy);
  to.lr_scaling = Same<LrScaling>(from.lr_scaling);
  to.lr_decay = Same<LrDecay>(from.lr_decay);
  return to;
}

plan::Plan ToCore(const Plan& from) {
  plan::Plan to;
  CopyPlan(from, to);
  to.lr_decay = static_cast<plan::LrDecay>(from.lr_decay);
  return to;
}

Plan FromCore(const plan::Plan& from) {
  Plan to;
  CopyPlan(from, to);
  to.lr_decay = static_cast<LrDecay>(from.lr_decay);
  to.hash = plan::Hash(from);
  return to;
}

absl::StatusOr<Plan> SolvePlan(const PlanDefaults& defaults, std::int64_t world_size) {
  DDL_ASSIGN_OR_RETURN(const plan::Plan core, plan::Solve(ToCore(defaults), world_size));
  return FromCore(core);
}

absl::Status CheckPlan(const Plan& plan, std::int64_t world_size) {
  if (plan.world_size != world_size) {
    return absl::InternalError("the agent's plan (" + plan.ToString() + ") is for a world of " +
                               std::to_string(plan.world_size) + ", this one has " +
                               std::to_string(world_size) + " ranks");
  }
  if (!SharesCover(plan)) {
    return absl::InternalError("the agent's plan does not multiply out: " + plan.ToString());
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace ddl
