// NoiseScale: the estimator against gradients whose noise scale is known.
#include "worker_sdk/src/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ddl::internal {
namespace {

constexpr int kDimensions = 500;

double Norm2(const std::vector<double>& vector) {
  double sum = 0;
  for (const double x : vector) {
    sum += x * x;
  }
  return sum;
}

// Steps of `world` ranks with `share` samples each. The true gradient has a
// squared norm of 1, a sample's noise is normal with tr(S) = `trace`: the noise
// scale is `trace`.
NoiseScale Simulate(double trace, int world, int share, int steps) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  // The mean over `share` samples has 1 / share of a sample's variance.
  const double deviation = std::sqrt(trace / kDimensions / share);
  const double component = std::sqrt(1.0 / kDimensions);
  NoiseScale scale;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> mean(kDimensions);
    double small_norm2 = 0;
    for (int rank = 0; rank < world; ++rank) {
      std::vector<double> gradient(kDimensions);
      for (int i = 0; i < kDimensions; ++i) {
        const auto at = static_cast<std::size_t>(i);
        gradient[at] = component + deviation * normal(random);
        mean[at] += gradient[at] / world;
      }
      small_norm2 += Norm2(gradient) / world;
    }
    scale.Add(share, small_norm2, 1.0 * world * share, Norm2(mean));
  }
  return scale;
}

TEST(NoiseScale, KnownDistribution_IsFoundWithinATenth) {
  for (const double truth : {8.0, 64.0, 512.0}) {
    for (const auto& [world, share] : {std::pair{2, 32}, {4, 16}, {8, 8}}) {
      const NoiseScale scale = Simulate(truth, world, share, 300);
      ASSERT_TRUE(scale.Samples().has_value());
      EXPECT_NEAR(*scale.Samples(), truth, truth / 10) << world << " x " << share;
      EXPECT_EQ(scale.readings(), 300);
    }
  }
}

TEST(NoiseScale, ExactNumbers_GiveTheExactScaleFromTheFirstReading) {
  // |G|^2 = 3, tr(S) = 60: E|g_b|^2 = 3 + 60 / b.
  NoiseScale scale;
  scale.Add(10, 9, 40, 4.5);
  EXPECT_DOUBLE_EQ(*scale.Samples(), 20);
  scale.Add(10, 9, 40, 4.5);
  EXPECT_DOUBLE_EQ(*scale.Samples(), 20);
}

TEST(NoiseScale, NoNoise_IsZero) {
  NoiseScale scale;
  scale.Add(8, 2, 32, 2);
  EXPECT_EQ(scale.Samples(), 0.0);
}

TEST(NoiseScale, GradientDrownedInNoise_IsUnknown) {
  NoiseScale scale;
  scale.Add(8, 16, 32, 4);  // exactly what noise alone would give
  EXPECT_FALSE(scale.Samples().has_value());
}

TEST(NoiseScale, NothingToCompare_IsLeftOut) {
  NoiseScale scale;
  scale.Add(32, 1, 32, 1);  // a world of one
  scale.Add(0, 1, 32, 1);
  scale.Add(8, std::numeric_limits<double>::infinity(), 32, 1);
  scale.Add(8, 1, 32, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(scale.readings(), 0);
  EXPECT_FALSE(scale.Samples().has_value());
}

}  // namespace
}  // namespace ddl::internal
