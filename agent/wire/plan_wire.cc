// The plan's messages to and from agent/plan's values.
#include "agent/wire/wire.h"
#include "ddlaunch/v1/plan.pb.h"

namespace ddl::wire {
namespace {

plan::LrScaling ScalingFromWire(ddlaunch::v1::LrScaling scaling) {
  switch (scaling) {
    case ddlaunch::v1::LR_SCALING_LINEAR:
      return plan::LrScaling::kLinear;
    case ddlaunch::v1::LR_SCALING_SQRT:
      return plan::LrScaling::kSqrt;
    default:
      return plan::LrScaling::kNone;
  }
}

ddlaunch::v1::LrScaling ScalingToWire(plan::LrScaling scaling) {
  switch (scaling) {
    case plan::LrScaling::kLinear:
      return ddlaunch::v1::LR_SCALING_LINEAR;
    case plan::LrScaling::kSqrt:
      return ddlaunch::v1::LR_SCALING_SQRT;
    case plan::LrScaling::kNone:
      break;
  }
  return ddlaunch::v1::LR_SCALING_NONE;
}

}  // namespace

plan::Request FromWire(const ddlaunch::v1::PlanRequest& request) {
  plan::Request out;
  if (request.has_global_batch_size()) {
    out.global_batch_size = request.global_batch_size();
  }
  if (request.has_micro_batch_size()) {
    out.micro_batch_size = request.micro_batch_size();
  }
  if (request.has_max_micro_batch_size()) {
    out.max_micro_batch_size = request.max_micro_batch_size();
  }
  if (request.has_grad_accum_steps()) {
    out.grad_accum_steps = request.grad_accum_steps();
  }
  if (request.has_base_lr()) {
    out.base_lr = request.base_lr();
  }
  if (request.has_base_batch_size()) {
    out.base_batch_size = request.base_batch_size();
  }
  if (request.has_lr_scaling()) {
    out.lr_scaling = ScalingFromWire(request.lr_scaling());
  }
  if (request.has_warmup_steps()) {
    out.warmup_steps = request.warmup_steps();
  }
  return out;
}

ddlaunch::v1::PlanRequest ToWire(const plan::Request& request) {
  ddlaunch::v1::PlanRequest out;
  if (request.global_batch_size.has_value()) {
    out.set_global_batch_size(*request.global_batch_size);
  }
  if (request.micro_batch_size.has_value()) {
    out.set_micro_batch_size(*request.micro_batch_size);
  }
  if (request.max_micro_batch_size.has_value()) {
    out.set_max_micro_batch_size(*request.max_micro_batch_size);
  }
  if (request.grad_accum_steps.has_value()) {
    out.set_grad_accum_steps(*request.grad_accum_steps);
  }
  if (request.base_lr.has_value()) {
    out.set_base_lr(*request.base_lr);
  }
  if (request.base_batch_size.has_value()) {
    out.set_base_batch_size(*request.base_batch_size);
  }
  if (request.lr_scaling.has_value()) {
    out.set_lr_scaling(ScalingToWire(*request.lr_scaling));
  }
  if (request.warmup_steps.has_value()) {
    out.set_warmup_steps(*request.warmup_steps);
  }
  return out;
}

plan::Plan FromWire(const ddlaunch::v1::Plan& plan) {
  plan::Plan out;
  out.world_size = plan.world_size();
  out.global_batch_size = plan.global_batch_size();
  out.micro_batch_size = plan.micro_batch_size();
  out.grad_accum_steps = plan.grad_accum_steps();
  if (plan.has_learning_rate()) {
    out.learning_rate = plan.learning_rate();
  }
  out.warmup_steps = plan.warmup_steps();
  return out;
}

ddlaunch::v1::Plan ToWire(const plan::Plan& plan) {
  ddlaunch::v1::Plan out;
  out.set_world_size(plan.world_size);
  out.set_global_batch_size(plan.global_batch_size);
  out.set_micro_batch_size(plan.micro_batch_size);
  out.set_grad_accum_steps(plan.grad_accum_steps);
  if (plan.learning_rate.has_value()) {
    out.set_learning_rate(*plan.learning_rate);
  }
  out.set_warmup_steps(plan.warmup_steps);
  out.set_hash(plan::Hash(plan));
  return out;
}

}  // namespace ddl::wire
