// The plan's messages, field by field.
#include "agent/plan_wire/plan_wire.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ddlaunch/v1/plan.pb.h"

namespace ddl::wire {
namespace {

namespace v1 = ::ddlaunch::v1;

// The contract has 0 for "unspecified" before the values, and is else the same.
// What a newer peer may send is read as the first.
template <typename Word>
Word WordFromWire(int number, Word last) {
  const int value = number - 1;
  return value < 0 || value > static_cast<int>(last) ? Word{} : static_cast<Word>(value);
}

template <typename Message, typename Word>
Message WordToWire(Word word) {
  return static_cast<Message>(static_cast<int>(word) + 1);
}

static_assert(v1::LR_SCALING_SQRT == static_cast<int>(plan::LrScaling::kSqrt) + 1);
static_assert(v1::BATCH_POLICY_EXACT == static_cast<int>(plan::BatchPolicy::kExact) + 1);
static_assert(v1::LR_DECAY_LINEAR == static_cast<int>(plan::LrDecay::kLinear) + 1);

}  // namespace

// One line a field: NAME is the field's name on both sides.
#define DDL_FROM_WIRE(NAME)    \
  if (request.has_##NAME()) {  \
    out.NAME = request.NAME(); \
  }
#define DDL_TO_WIRE(NAME)          \
  if (request.NAME.has_value()) {  \
    out.set_##NAME(*request.NAME); \
  }
#define DDL_PLAIN_REQUEST_FIELDS(FIELD) \
  FIELD(global_batch_size)              \
  FIELD(micro_batch_size)               \
  FIELD(max_micro_batch_size)           \
  FIELD(min_micro_batch_size)           \
  FIELD(learned_max_micro_batch_size)   \
  FIELD(uneven_micro_steps)             \
  FIELD(grad_accum_steps)               \
  FIELD(base_lr)                        \
  FIELD(base_batch_size)                \
  FIELD(total_samples)                  \
  FIELD(epoch_samples)                  \
  FIELD(warmup_steps)                   \
  FIELD(warmup_ratio)                   \
  FIELD(warmup_epochs)                  \
  FIELD(warmup_start_lr)                \
  FIELD(lr_decay_steps)                 \
  FIELD(lr_decay_epochs)                \
  FIELD(lr_decay_factor)                \
  FIELD(adam_beta1)                     \
  FIELD(adam_beta2)                     \
  FIELD(adam_eps)                       \
  FIELD(scale_adam)

plan::Request FromWire(const v1::PlanRequest& request) {
  plan::Request out;
  DDL_PLAIN_REQUEST_FIELDS(DDL_FROM_WIRE)
  if (request.has_batch_policy()) {
    out.batch_policy = WordFromWire(request.batch_policy(), plan::BatchPolicy::kExact);
  }
  if (request.has_lr_scaling()) {
    out.lr_scaling = WordFromWire(request.lr_scaling(), plan::LrScaling::kSqrt);
  }
  if (request.has_lr_decay()) {
    out.lr_decay = WordFromWire(request.lr_decay(), plan::LrDecay::kLinear);
  }
  return out;
}

v1::PlanRequest ToWire(const plan::Request& request) {
  v1::PlanRequest out;
  DDL_PLAIN_REQUEST_FIELDS(DDL_TO_WIRE)
  if (request.batch_policy.has_value()) {
    out.set_batch_policy(WordToWire<v1::BatchPolicy>(*request.batch_policy));
  }
  if (request.lr_scaling.has_value()) {
    out.set_lr_scaling(WordToWire<v1::LrScaling>(*request.lr_scaling));
  }
  if (request.lr_decay.has_value()) {
    out.set_lr_decay(WordToWire<v1::LrDecay>(*request.lr_decay));
  }
  return out;
}

#undef DDL_FROM_WIRE
#undef DDL_TO_WIRE
#undef DDL_PLAIN_REQUEST_FIELDS

plan::Plan FromWire(const v1::Plan& plan) {
  plan::Plan out;
  out.world_size = plan.world_size();
  out.global_batch_size = plan.global_batch_size();
  out.micro_batch_size = plan.micro_batch_size();
  out.grad_accum_steps = plan.grad_accum_steps();
  if (plan.has_learning_rate()) {
    out.learning_rate = plan.learning_rate();
  }
  out.warmup_samples = plan.warmup_samples();
  out.warmup_steps = plan.warmup_steps();
  out.warmup_start_lr = plan.warmup_start_lr();
  out.total_samples = plan.total_samples();
  out.total_steps = plan.total_steps();
  out.lr_decay = WordFromWire(plan.lr_decay(), plan::LrDecay::kLinear);
  out.lr_decay_samples = plan.lr_decay_samples();
  out.lr_decay_factor = plan.lr_decay_factor();
  if (plan.has_adam()) {
    out.adam = plan::Adam{plan.adam().beta1(), plan.adam().beta2(), plan.adam().eps()};
  }
  return out;
}

v1::Plan ToWire(const plan::Plan& plan) {
  v1::Plan out;
  out.set_world_size(plan.world_size);
  out.set_global_batch_size(plan.global_batch_size);
  out.set_micro_batch_size(plan.micro_batch_size);
  out.set_grad_accum_steps(plan.grad_accum_steps);
  if (plan.learning_rate.has_value()) {
    out.set_learning_rate(*plan.learning_rate);
  }
  out.set_warmup_samples(plan.warmup_samples);
  out.set_warmup_steps(plan.warmup_steps);
  out.set_warmup_start_lr(plan.warmup_start_lr);
  out.set_total_samples(plan.total_samples);
  out.set_total_steps(plan.total_steps);
  out.set_lr_decay(WordToWire<v1::LrDecay>(plan.lr_decay));
  out.set_lr_decay_samples(plan.lr_decay_samples);
  out.set_lr_decay_factor(plan.lr_decay_factor);
  if (plan.adam.has_value()) {
    out.mutable_adam()->set_beta1(plan.adam->beta1);
    out.mutable_adam()->set_beta2(plan.adam->beta2);
    out.mutable_adam()->set_eps(plan.adam->eps);
  }
  out.set_hash(plan::Hash(plan));
  return out;
}

absl::StatusOr<plan::Plan> CheckedPlan(const v1::Plan& plan) {
  plan::Plan out = FromWire(plan);
  if (const std::string hash = plan::Hash(out); hash != plan.hash()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan that came (", plan::Describe(out), ") has hash ", plan.hash(),
                     "; computed here: ", hash,
                     "; use the same release of ddlaunch on every node and in the program"));
  }
  return out;
}

}  // namespace ddl::wire
