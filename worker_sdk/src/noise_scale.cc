// The two unbiased estimators, their moving averages and the quotient.
#include "worker_sdk/src/noise_scale.h"

#include <algorithm>
#include <cmath>

namespace ddl::internal {
namespace {

// The weight of what was, at each reading: a memory of about 50 readings.
constexpr double kDecay = 0.98;

}  // namespace

void NoiseScale::Add(double small_batch, double small_norm2, double big_batch, double big_norm2) {
  if (!(small_batch > 0 && big_batch > small_batch) || !std::isfinite(small_norm2) ||
      !std::isfinite(big_norm2)) {
    return;
  }
  const double gradient2 =
      (big_batch * big_norm2 - small_batch * small_norm2) / (big_batch - small_batch);
  const double trace = (small_norm2 - big_norm2) / (1 / small_batch - 1 / big_batch);
  trace_ = kDecay * trace_ + (1 - kDecay) * trace;
  gradient2_ = kDecay * gradient2_ + (1 - kDecay) * gradient2;
  ++readings_;
}

std::optional<double> NoiseScale::Samples() const {
  if (readings_ == 0 || gradient2_ <= 0) {
    return std::nullopt;
  }
  return std::max(0.0, trace_ / gradient2_);
}

}  // namespace ddl::internal
