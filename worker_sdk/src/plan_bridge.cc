// Conversion between ddl::Plan and ddl::plan::Plan, and the checks on the way.
#include "worker_sdk/src/plan_bridge.h"

#include <algorithm>
#include <optional>
#include <string>

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

std::int64_t CeilDivide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

// Whether the largest share of a rank, in so many micro-steps, has micro-batches of at
// most this size: no more of them than samples, and none larger than it must be. Even
// shares fulfil micro x accumulation x world = global then.
bool MultipliesOut(const Plan& plan) {
  if (plan.micro_batch_size < 1 || plan.grad_accum_steps < 1 || plan.world_size < 1 ||
      plan.global_batch_size < 1) {
    return false;
  }
  const std::int64_t share = CeilDivide(plan.global_batch_size, plan.world_size);
  return plan.grad_accum_steps <= share &&
         plan.micro_batch_size == CeilDivide(share, plan.grad_accum_steps);
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

std::int64_t MaxMicroBatchSize(const plan::Request& request) {
  const std::int64_t asked = request.max_micro_batch_size.value_or(0);
  const std::int64_t learned = request.learned_max_micro_batch_size.value_or(0);
  return asked > 0 && learned > 0 ? std::min(asked, learned) : std::max(asked, learned);
}

absl::Status CheckPlan(const Plan& plan, std::int64_t world_size) {
  if (plan.world_size != world_size) {
    return absl::InternalError("the agent's plan (" + plan.ToString() + ") is for a world of " +
                               std::to_string(plan.world_size) + ", this one has " +
                               std::to_string(world_size) + " ranks");
  }
  if (!MultipliesOut(plan)) {
    return absl::InternalError("the agent's plan does not multiply out: " + plan.ToString());
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace ddl
