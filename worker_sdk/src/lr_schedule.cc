// Warm-up and decay of the learning rate.
#include "ddl/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace ddl {

absl::StatusOr<LrSchedule> LrSchedule::Create(const Plan& plan, LrDecay decay,
                                              std::int64_t total_steps) {
  if (!plan.learning_rate.has_value()) {
    return absl::InvalidArgumentError(
        "the plan has no learning rate; give --base-lr, or base_lr in the program's defaults");
  }
  if (decay == LrDecay::kCosine && total_steps <= plan.warmup_steps) {
    return absl::InvalidArgumentError("cosine decay over " + std::to_string(total_steps) +
                                      " steps leaves none after a warm-up of " +
                                      std::to_string(plan.warmup_steps));
  }
  return LrSchedule(*plan.learning_rate, plan.warmup_steps, decay, total_steps);
}

double LrSchedule::Rate(std::int64_t step) const {
  if (step < warmup_steps_) {
    return peak_ * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  }
  if (decay_ == LrDecay::kConstant) {
    return peak_;
  }
  const double progress =
      static_cast<double>(step - warmup_steps_) / static_cast<double>(total_steps_ - warmup_steps_);
  return peak_ * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0))) / 2;
}

}  // namespace ddl
