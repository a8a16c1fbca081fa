// The flags by which users know the numbers of a plan: the one home of their names
// here. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_FLAG_NAMES_H_
#define DDLAUNCH_AGENT_PLAN_FLAG_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/plan/number_text.h"
#include "agent/plan/plan.h"

namespace ddl::plan {

inline constexpr std::string_view kGlobal = "--global-batch-size";
inline constexpr std::string_view kMicro = "--micro-batch-size";
inline constexpr std::string_view kMaxMicro = "--max-micro-batch-size";
inline constexpr std::string_view kMinMicro = "--min-micro-batch-size";
inline constexpr std::string_view kAccumulation = "--grad-accum-steps";
inline constexpr std::string_view kPolicy = "--batch-policy";
inline constexpr std::string_view kBaseLr = "--base-lr";
inline constexpr std::string_view kBaseBatch = "--base-batch-size";
inline constexpr std::string_view kScaling = "--lr-scaling";
inline constexpr std::string_view kTotal = "--total-samples";
inline constexpr std::string_view kEpoch = "--epoch-samples";
inline constexpr std::string_view kWarmupSteps = "--warmup-steps";
inline constexpr std::string_view kWarmupRatio = "--warmup-ratio";
inline constexpr std::string_view kWarmupEpochs = "--warmup-epochs";
inline constexpr std::string_view kWarmupStart = "--warmup-start-lr";
inline constexpr std::string_view kDecay = "--lr-decay";
inline constexpr std::string_view kDecaySteps = "--lr-decay-steps";
inline constexpr std::string_view kDecayEpochs = "--lr-decay-epochs";
inline constexpr std::string_view kDecayFactor = "--lr-decay-factor";
inline constexpr std::string_view kBeta1 = "--adam-beta1";
inline constexpr std::string_view kBeta2 = "--adam-beta2";
inline constexpr std::string_view kEps = "--adam-eps";
inline constexpr std::string_view kScaleAdam = "--scale-adam";

inline std::string FlagText(std::string_view name, std::int64_t value) {
  return Flag(name, value);
}
inline std::string FlagText(std::string_view name, double value) {
  return Flag(name, value);
}
inline std::string FlagText(std::string_view name, bool value) {
  return std::string(name) + (value ? "=true" : "=false");
}
template <typename Word>
std::string FlagText(std::string_view name, Word value) {
  return std::string(name) + "=" + ToString(value);
}

// Calls each(name, field) for every field that has a flag, in the manual's order;
// `field` is a pointer to a member that is an optional.
template <typename Each>
void ForEachFlag(const Each& each) {
  each(kGlobal, &Request::global_batch_size);
  each(kMicro, &Request::micro_batch_size);
  each(kMaxMicro, &Request::max_micro_batch_size);
  each(kMinMicro, &Request::min_micro_batch_size);
  each(kAccumulation, &Request::grad_accum_steps);
  each(kPolicy, &Request::batch_policy);
  each(kBaseLr, &Request::base_lr);
  each(kBaseBatch, &Request::base_batch_size);
  each(kScaling, &Request::lr_scaling);
  each(kTotal, &Request::total_samples);
  each(kEpoch, &Request::epoch_samples);
  each(kWarmupSteps, &Request::warmup_steps);
  each(kWarmupRatio, &Request::warmup_ratio);
  each(kWarmupEpochs, &Request::warmup_epochs);
  each(kWarmupStart, &Request::warmup_start_lr);
  each(kDecay, &Request::lr_decay);
  each(kDecaySteps, &Request::lr_decay_steps);
  each(kDecayEpochs, &Request::lr_decay_epochs);
  each(kDecayFactor, &Request::lr_decay_factor);
  each(kBeta1, &Request::adam_beta1);
  each(kBeta2, &Request::adam_beta2);
  each(kEps, &Request::adam_eps);
  each(kScaleAdam, &Request::scale_adam);
}

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_FLAG_NAMES_H_
