// Lengths are kept in samples: what is given in optimizer steps counts those at the
// global batch asked for, so that another world, with another actual batch, neither
// repeats nor skips a part of training.
#include "agent/plan/schedule.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/status_macros.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

constexpr double kDefaultDecayFactor = 0.1;

absl::Status CheckSamples(std::string_view name, std::optional<std::int64_t> value,
                          std::int64_t least) {
  return !value.has_value() || (*value >= least && *value <= kMaxSamples)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(Flag(name, *value) +
                                          " is out of range: " + std::to_string(least) + " to " +
                                          std::to_string(kMaxSamples));
}

absl::Status CheckNumber(std::string_view name, std::optional<double> value, bool is_right,
                         const char* range) {
  return !value.has_value() || is_right
             ? absl::OkStatus()
             : absl::InvalidArgumentError(Flag(name, *value) + " is out of range: " + range);
}

absl::Status CheckRanges(const Request& request) {
  const auto most = static_cast<double>(kMaxSamples);
  const double ratio = request.warmup_ratio.value_or(0);
  const double warmup = request.warmup_epochs.value_or(0);
  const double start = request.warmup_start_lr.value_or(0);
  const double interval = request.lr_decay_epochs.value_or(1);
  const double factor = request.lr_decay_factor.value_or(kDefaultDecayFactor);
  DDL_RETURN_IF_ERROR(CheckSamples(kTotal, request.total_samples, 1));
  DDL_RETURN_IF_ERROR(CheckSamples(kEpoch, request.epoch_samples, 1));
  DDL_RETURN_IF_ERROR(CheckSamples(kWarmupSteps, request.warmup_steps, 0));
  DDL_RETURN_IF_ERROR(CheckSamples(kDecaySteps, request.lr_decay_steps, 1));
  DDL_RETURN_IF_ERROR(
      CheckNumber(kWarmupRatio, request.warmup_ratio, ratio >= 0 && ratio <= 1, "0 to 1"));
  DDL_RETURN_IF_ERROR(CheckNumber(kWarmupEpochs, request.warmup_epochs,
                                  warmup >= 0 && warmup <= most, "from 0 on"));
  DDL_RETURN_IF_ERROR(CheckNumber(kWarmupStart, request.warmup_start_lr,
                                  start >= 0 && std::isfinite(start), "from 0 on, and finite"));
  DDL_RETURN_IF_ERROR(CheckNumber(kDecayEpochs, request.lr_decay_epochs,
                                  interval > 0 && interval <= most, "above 0"));
  return CheckNumber(kDecayFactor, request.lr_decay_factor, factor > 0 && factor < 1,
                     "between 0 and 1");
}

// Of the ways to say one length, those that were used, by their flags.
Listing Said(const Request& request, bool warmup) {
  Listing said;
  if (warmup) {
    if (request.warmup_steps.has_value()) {
      said.Add(Flag(kWarmupSteps, *request.warmup_steps));
    }
    if (request.warmup_ratio.has_value()) {
      said.Add(Flag(kWarmupRatio, *request.warmup_ratio));
    }
    if (request.warmup_epochs.has_value()) {
      said.Add(Flag(kWarmupEpochs, *request.warmup_epochs));
    }
  } else {
    if (request.lr_decay_steps.has_value()) {
      said.Add(Flag(kDecaySteps, *request.lr_decay_steps));
    }
    if (request.lr_decay_epochs.has_value()) {
      said.Add(Flag(kDecayEpochs, *request.lr_decay_epochs));
    }
  }
  return said;
}

absl::Status Needs(const std::string& what, std::string_view needed) {
  return absl::InvalidArgumentError(what + " needs " + std::string(needed) + "; give it too");
}

absl::Status CheckWarmup(const Request& request) {
  const Listing said = Said(request, true);
  if (said.size() > 1) {
    return absl::InvalidArgumentError(said.Text("and") +
                                      " are lengths of the one warm-up; give one of them");
  }
  if (request.warmup_ratio.has_value() && !request.total_samples.has_value()) {
    return Needs(Flag(kWarmupRatio, *request.warmup_ratio), kTotal);
  }
  if (request.warmup_epochs.has_value() && !request.epoch_samples.has_value()) {
    return Needs(Flag(kWarmupEpochs, *request.warmup_epochs), kEpoch);
  }
  return absl::OkStatus();
}

absl::Status CheckDecay(const Request& request) {
  const LrDecay decay = request.lr_decay.value_or(LrDecay::kConstant);
  const std::string kind = std::string(kDecay) + "=" + ToString(decay);
  Listing said = Said(request, false);
  if (decay == LrDecay::kStep) {
    if (said.size() != 1) {
      return absl::InvalidArgumentError(
          said.empty() ? kind + " needs its interval; give " + std::string(kDecaySteps) + " or " +
                             std::string(kDecayEpochs)
                       : said.Text("and") + " are intervals of the one decay; give one of them");
    }
    return request.lr_decay_epochs.has_value() && !request.epoch_samples.has_value()
               ? Needs(Flag(kDecayEpochs, *request.lr_decay_epochs), kEpoch)
               : absl::OkStatus();
  }
  if (request.lr_decay_factor.has_value()) {
    said.Add(Flag(kDecayFactor, *request.lr_decay_factor));
  }
  if (!said.empty()) {
    return absl::InvalidArgumentError(
        said.Text("and") + " with " + kind +
        ": it is for a decay in steps; nearest: " + std::string(kDecay) + "=step");
  }
  if (decay != LrDecay::kConstant && !request.total_samples.has_value()) {
    return Needs(kind, kTotal);
  }
  return absl::OkStatus();
}

// Steps at the global batch asked for, else `epochs`, as samples; REQUIRES one of them.
absl::StatusOr<std::int64_t> SamplesOf(const Request& request, const Plan& plan,
                                       std::string_view steps_name,
                                       std::optional<std::int64_t> steps,
                                       std::string_view epochs_name, std::optional<double> epochs) {
  if (steps.has_value()) {
    const std::int64_t asked = request.global_batch_size.value_or(plan.global_batch_size);
    std::int64_t samples = 0;
    if (__builtin_mul_overflow(*steps, asked, &samples) || samples > kMaxSamples) {
      return absl::InvalidArgumentError(
          Flag(steps_name, *steps) + " of " + std::to_string(asked) + " samples are beyond " +
          std::to_string(kMaxSamples) +
          " samples; nearest: " + Flag(steps_name, kMaxSamples / asked));
    }
    return samples;
  }
  const auto epoch = static_cast<double>(*request.epoch_samples);
  const double samples = std::round(*epochs * epoch);
  if (samples > static_cast<double>(kMaxSamples)) {
    return absl::InvalidArgumentError(
        Flag(epochs_name, *epochs) + " of " + Flag(kEpoch, *request.epoch_samples) +
        " are beyond " + std::to_string(kMaxSamples) +
        " samples; nearest: " + Flag(epochs_name, kMaxSamples / *request.epoch_samples));
  }
  return static_cast<std::int64_t>(samples);
}

absl::Status SolveWarmup(const Request& request, Plan& plan) {
  if (request.warmup_ratio.has_value()) {
    plan.warmup_samples =
        std::llround(*request.warmup_ratio * static_cast<double>(*request.total_samples));
  } else if (request.warmup_steps.has_value() || request.warmup_epochs.has_value()) {
    DDL_ASSIGN_OR_RETURN(plan.warmup_samples,
                         SamplesOf(request, plan, kWarmupSteps, request.warmup_steps, kWarmupEpochs,
                                   request.warmup_epochs));
  }
  plan.warmup_steps = CeilDivide(plan.warmup_samples, plan.global_batch_size);
  plan.warmup_start_lr = request.warmup_start_lr.value_or(0);
  if (plan.learning_rate.has_value() && plan.warmup_start_lr > 0 &&
      plan.warmup_start_lr >= *plan.learning_rate) {
    return absl::InvalidArgumentError(Flag(kWarmupStart, plan.warmup_start_lr) +
                                      " is not below the learning rate that it rises to, " +
                                      RoundTrip(*plan.learning_rate) +
                                      "; nearest: " + Flag(kWarmupStart, std::int64_t{0}));
  }
  return absl::OkStatus();
}

// The last step of each epoch, and the last of all, may be incomplete, and counts.
std::int64_t StepsOf(const Request& request, const Plan& plan) {
  const std::int64_t global = plan.global_batch_size;
  const std::int64_t epoch = request.epoch_samples.value_or(plan.total_samples);
  if (epoch == 0) {
    return 0;  // neither is known
  }
  return plan.total_samples / epoch * CeilDivide(epoch, global) +
         CeilDivide(plan.total_samples % epoch, global);
}

std::string ShorterWarmup(const Request& request, std::int64_t most, std::int64_t asked) {
  if (request.warmup_ratio.has_value()) {
    constexpr double kCustomaryRatio = 0.05;
    return Flag(kWarmupRatio, kCustomaryRatio);
  }
  return request.warmup_epochs.has_value() ? Flag(kWarmupEpochs, most / *request.epoch_samples)
                                           : Flag(kWarmupSteps, most / asked);
}

absl::Status SolveDecay(const Request& request, Plan& plan) {
  plan.lr_decay = request.lr_decay.value_or(LrDecay::kConstant);
  if (plan.lr_decay == LrDecay::kConstant) {
    return absl::OkStatus();
  }
  if (plan.lr_decay == LrDecay::kStep) {
    plan.lr_decay_factor = request.lr_decay_factor.value_or(kDefaultDecayFactor);
    DDL_ASSIGN_OR_RETURN(plan.lr_decay_samples,
                         SamplesOf(request, plan, kDecaySteps, request.lr_decay_steps, kDecayEpochs,
                                   request.lr_decay_epochs));
    return plan.lr_decay_samples > 0
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     Flag(kDecayEpochs, *request.lr_decay_epochs) + " of " +
                     Flag(kEpoch, *request.epoch_samples) +
                     " are no sample; nearest: " + Flag(kDecayEpochs, std::int64_t{1}));
  }
  if (plan.total_samples > plan.warmup_samples) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      std::string(kDecay) + "=" + ToString(plan.lr_decay) + " falls from the end of the warm-up, " +
      std::to_string(plan.warmup_samples) + " samples, to " + Flag(kTotal, plan.total_samples) +
      ", which is not beyond it; nearest: " +
      ShorterWarmup(request, plan.total_samples - 1,
                    request.global_batch_size.value_or(plan.global_batch_size)));
}

}  // namespace

absl::Status CheckSchedule(const Request& request) {
  DDL_RETURN_IF_ERROR(CheckRanges(request));
  DDL_RETURN_IF_ERROR(CheckWarmup(request));
  return CheckDecay(request);
}

absl::Status SolveSchedule(const Request& request, Plan& plan) {
  plan.total_samples = request.total_samples.value_or(0);
  plan.total_steps = StepsOf(request, plan);
  DDL_RETURN_IF_ERROR(SolveWarmup(request, plan));
  return SolveDecay(request, plan);
}

}  // namespace ddl::plan
