// LrSchedule: the learning rate of each optimizer step, from the plan alone. A
// plain value.
//
// Everything is counted in samples of the whole job since the start of training,
// never in steps of one world: a change of the world in mid-training, with
// another global batch and another peak, neither repeats nor skips a part of the
// warm-up or the decay. `done` are the samples before the step, `step` its own.
//
//   warm-up, done < warmup_samples:
//     start + (peak - start) x min(1, (done + step) / warmup_samples)
//     equal increments at equal steps, full at the last warm-up step (Goyal et
//     al. 2017, section 2.2: start is then the unscaled rate)
//   kConstant: peak
//   kStep:     peak x factor^floor(done / interval). The interval counts from the
//              start of training, as in PyTorch's StepLR and in Goyal et al.
//              (epochs 30, 60, 80, warm-up included), not from the warm-up's end
//   kCosine:   peak x (1 + cos(pi x t)) / 2 (Loshchilov and Hutter 2017, no
//              restarts)
//   kLinear:   peak x (1 - t)
//     t rises from 0 at the end of the warm-up to 1 at total_samples, and stays.
#ifndef DDL_LR_SCHEDULE_H_
#define DDL_LR_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ddl/context.h"

namespace ddl {

class LrSchedule {
 public:
  // Errors: INVALID_ARGUMENT, the plan has no learning rate; kCosine or kLinear
  // without samples beyond the warm-up; kStep without an interval or a factor.
  static absl::StatusOr<LrSchedule> Create(const Plan& plan);

  // `samples_done`: by all ranks together since the start of training, before
  // this step. With a data set of N: epoch x N + consumed samples of the epoch.
  // `step_samples`: of this step, over all ranks (StepShare::global_samples).
  // REQUIRES: both >= 0.
  [[nodiscard]] double Rate(std::int64_t samples_done, std::int64_t step_samples) const;
  // The rate after warm-up, before decay.
  [[nodiscard]] double peak() const { return peak_; }

 private:
  explicit LrSchedule(const Plan& plan);

  double peak_;
  double start_;
  std::int64_t warmup_samples_;
  LrDecay decay_;
  std::int64_t total_samples_;
  std::int64_t decay_samples_;
  double decay_factor_;
};

}  // namespace ddl

#endif  // DDL_LR_SCHEDULE_H_
