// LrSchedule: the learning rate of each optimizer step. A plain value.
//
// Steps are optimizer steps, counted from 0 over the whole training, never
// micro-steps: the schedule is the same whatever the world and accumulation.
//   step < warmup_steps:  peak x (step + 1) / warmup_steps
//                         (equal increments; Goyal et al. 2017, section 2.2)
//   then, kConstant:      peak
//   then, kCosine:        peak x (1 + cos(pi x t)) / 2, t from 0 at the end of
//                         the warm-up to 1 at total_steps
//                         (Loshchilov and Hutter 2017, no restarts)
#ifndef DDL_LR_SCHEDULE_H_
#define DDL_LR_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ddl/context.h"

namespace ddl {

class LrSchedule {
 public:
  // The plan's rate and warm-up. `total_steps` is used by kCosine only.
  // Errors: INVALID_ARGUMENT, the plan has no learning rate, or kCosine without
  // steps beyond the warm-up.
  static absl::StatusOr<LrSchedule> Create(const Plan& plan, LrDecay decay = LrDecay::kConstant,
                                           std::int64_t total_steps = 0);

  // REQUIRES: step >= 0.
  [[nodiscard]] double Rate(std::int64_t step) const;
  // The rate after warm-up.
  [[nodiscard]] double peak() const { return peak_; }

 private:
  LrSchedule(double peak, std::int64_t warmup_steps, LrDecay decay, std::int64_t total_steps)
      : peak_(peak), warmup_steps_(warmup_steps), decay_(decay), total_steps_(total_steps) {}

  double peak_;
  std::int64_t warmup_steps_;
  LrDecay decay_;
  std::int64_t total_steps_;
};

}  // namespace ddl

#endif  // DDL_LR_SCHEDULE_H_
