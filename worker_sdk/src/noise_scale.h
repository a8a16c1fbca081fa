// The gradient noise scale B_simple = tr(S) / |G|^2, in samples, of McCandlish
// et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1. G is
// the true gradient, S the covariance of one sample's. A plain value, pure.
//
// Two batch sizes give two equations, E|g_b|^2 = |G|^2 + tr(S) / b. With one
// rank's share b and the global batch B,
//   |G|^2 ~ (B g_big^2 - b g_small^2) / (B - b)
//   tr(S) ~ (g_small^2 - g_big^2) / (1/b - 1/B)
// Both are unbiased, their quotient is not: so numerator and denominator are
// averaged apart, and divided last.
#ifndef DDLAUNCH_WORKER_SDK_SRC_NOISE_SCALE_H_
#define DDLAUNCH_WORKER_SDK_SRC_NOISE_SCALE_H_

#include <cstdint>
#include <optional>

namespace ddl::internal {

class NoiseScale {
 public:
  // One step. `small_norm2`: the mean over the ranks of the squared norm of their
  // own mean gradient, over `small_batch` samples each; `big_norm2`: the squared
  // norm of the mean over all `big_batch` samples. What is not finite, and equal
  // batches (a world of one), which say nothing, are left out.
  void Add(double small_batch, double small_norm2, double big_batch, double big_norm2);

  // Steps that count.
  [[nodiscard]] std::int64_t readings() const { return readings_; }

  // Nothing without readings, or where the gradient drowns in noise: |G|^2 came
  // out as 0 or below.
  [[nodiscard]] std::optional<double> Samples() const;

 private:
  std::int64_t readings_ = 0;
  // Exponential moving averages from 0; the common bias of the start cancels.
  double trace_ = 0;
  double gradient2_ = 0;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_NOISE_SCALE_H_
