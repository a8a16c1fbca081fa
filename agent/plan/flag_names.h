// The flags by which users know the numbers of a plan. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_FLAG_NAMES_H_
#define DDLAUNCH_AGENT_PLAN_FLAG_NAMES_H_

#include <string_view>

namespace ddl::plan {

inline constexpr std::string_view kGlobal = "--global-batch-size";
inline constexpr std::string_view kMicro = "--micro-batch-size";
inline constexpr std::string_view kMaxMicro = "--max-micro-batch-size";
inline constexpr std::string_view kMinMicro = "--min-micro-batch-size";
inline constexpr std::string_view kAccumulation = "--grad-accum-steps";
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

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_FLAG_NAMES_H_
