// Warm-up and decay of the learning rate.
#include "ddl/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "agent/base/check.h"
#include "agent/base/status_macros.h"

namespace ddl {
namespace {

absl::Status CheckDecay(const Plan& plan) {
  if (plan.lr_decay == LrDecay::kStep) {
    if (plan.lr_decay_samples < 1) {
      return absl::InvalidArgumentError(
          "step decay without an interval; give --lr-decay-steps or --lr-decay-epochs");
    }
    if (!(std::isfinite(plan.lr_decay_factor) && plan.lr_decay_factor > 0)) {
      return absl::InvalidArgumentError("a decay factor of " +
                                        std::to_string(plan.lr_decay_factor) +
                                        "; give --lr-decay-factor, above 0 and finite");
    }
  }
  const bool to_the_end = plan.lr_decay == LrDecay::kCosine || plan.lr_decay == LrDecay::kLinear;
  if (to_the_end && plan.total_samples <= plan.warmup_samples) {
    return absl::InvalidArgumentError(
        std::string(plan.lr_decay == LrDecay::kCosine ? "cosine" : "linear") + " decay over " +
        std::to_string(plan.total_samples) + " samples leaves none after a warm-up of " +
        std::to_string(plan.warmup_samples) + " samples; give --total-samples, above the warm-up");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LrSchedule> LrSchedule::Create(const Plan& plan) {
  if (!plan.learning_rate.has_value()) {
    return absl::InvalidArgumentError(
        "the plan has no learning rate; give --base-lr, or base_lr in the program's defaults");
  }
  DDL_RETURN_IF_ERROR(CheckDecay(plan));
  return LrSchedule(plan);
}

LrSchedule::LrSchedule(const Plan& plan)
    : peak_(*plan.learning_rate),
      start_(plan.warmup_start_lr),
      warmup_samples_(plan.warmup_samples),
      decay_(plan.lr_decay),
      total_samples_(plan.total_samples),
      decay_samples_(plan.lr_decay_samples),
      decay_factor_(plan.lr_decay_factor) {}

double LrSchedule::Rate(std::int64_t samples_done, std::int64_t step_samples) const {
  DDL_CHECK(samples_done >= 0 && step_samples >= 0);
  if (samples_done < warmup_samples_) {
    // Compared before they are added: no sum overflows, and full is exactly the peak.
    if (step_samples >= warmup_samples_ - samples_done) {
      return peak_;
    }
    return start_ + (peak_ - start_) * static_cast<double>(samples_done + step_samples) /
                        static_cast<double>(warmup_samples_);
  }
  if (decay_ == LrDecay::kConstant) {
    return peak_;
  }
  if (decay_ == LrDecay::kStep) {
    const std::int64_t decays = samples_done / decay_samples_;
    return peak_ * std::pow(decay_factor_, static_cast<double>(decays));
  }
  const double t = std::min(1.0, static_cast<double>(samples_done - warmup_samples_) /
                                     static_cast<double>(total_samples_ - warmup_samples_));
  if (decay_ == LrDecay::kLinear) {
    return peak_ * (1 - t);
  }
  return peak_ * (1 + std::cos(std::numbers::pi * t)) / 2;
}

}  // namespace ddl
