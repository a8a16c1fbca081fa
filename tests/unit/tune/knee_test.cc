// The knee on curves whose knee is known, without and with noise.
#include "launcher/tune/knee.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace ddl::tune {
namespace {

using ::testing::ElementsAre;

// A step costs `fixed` seconds and 1 s for each sample.
double Throughput(std::int64_t micro, double fixed) {
  const auto m = static_cast<double>(micro);
  return m / (fixed + m);
}

std::vector<CurvePoint> Doublings(std::int64_t most, double fixed) {
  std::vector<CurvePoint> curve;
  for (std::int64_t micro = 1; micro <= most; micro *= 2) {
    curve.push_back({micro, Throughput(micro, fixed)});
  }
  return curve;
}

std::int64_t KneeOf(const std::vector<CurvePoint>& curve) {
  return curve[FindKnee(curve)].micro_batch_size;
}

TEST(Knee, SaturatingCurve_IsWhereNineTenthsAreReached) {
  // 0.9 of the plateau is at 9 times the fixed cost.
  EXPECT_EQ(KneeOf(Doublings(1 << 12, 7)), 64);
  EXPECT_EQ(KneeOf(Doublings(1 << 12, 14)), 128);
  EXPECT_EQ(KneeOf(Doublings(1 << 12, 0.05)), 1);
}

TEST(Knee, CurveStillRising_IsItsEnd) {
  EXPECT_EQ(KneeOf(Doublings(64, 10'000)), 64);
}

TEST(Knee, Rise_EndsWhereNineTenthsOfThePlateauAreReached) {
  EXPECT_TRUE(StillRises(Doublings(64, 7.5)));
  EXPECT_FALSE(StillRises(Doublings(64, 7)));
  // Also where the last is no doubling of the one before.
  for (const std::int64_t last : {72, 100, 120}) {
    std::vector<CurvePoint> curve = Doublings(64, 10);
    curve.push_back({last, Throughput(last, 10)});
    EXPECT_EQ(StillRises(curve), last < 90) << last;
  }
  EXPECT_FALSE(StillRises({{1, 50}, {2, 80}, {4, 95}, {8, 100}, {16, 97}, {32, 50}, {64, 70}}));
  EXPECT_TRUE(StillRises({{8, 3}}));
  EXPECT_TRUE(StillRises({{8, 3}, {12, 4}}));
  EXPECT_FALSE(StillRises({{8, 3}, {12, 3.1}}));
}

TEST(Knee, CurveThatFalls_IsBeforeItsTop) {
  EXPECT_EQ(KneeOf({{1, 50}, {2, 80}, {4, 95}, {8, 100}, {16, 97}, {32, 70}, {64, 50}}), 4);
}

TEST(Knee, OneOrTwoPoints_AreTakenAsTheyAre) {
  EXPECT_EQ(KneeOf({{8, 3}}), 8);
  EXPECT_EQ(KneeOf({{8, 3}, {16, 6}}), 16);
  EXPECT_EQ(KneeOf({{8, 5.9}, {16, 6}}), 8);
}

TEST(Knee, OneDisturbedOrLuckyTrial_DoesNotMoveIt) {
  const std::vector<CurvePoint> curve = Doublings(1 << 12, 7);
  for (std::size_t i = 1; i < curve.size(); ++i) {
    for (const double factor : {0.3, 2.0}) {
      std::vector<CurvePoint> disturbed = curve;
      disturbed[i].samples_per_s *= factor;
      const std::int64_t knee = KneeOf(disturbed);
      EXPECT_GE(knee, 32) << i << " x " << factor;
      EXPECT_LE(knee, 128) << i << " x " << factor;
    }
  }
}

TEST(Knee, Smoothing_LeavesARisingCurveAlone) {
  EXPECT_THAT(SmoothedThroughput({{1, 1}, {2, 2}, {4, 3}, {8, 3.5}, {16, 3.6}}),
              ElementsAre(1, 2, 3, 3.5, 3.6));
  EXPECT_THAT(SmoothedThroughput({{1, 1}, {2, 9}, {4, 3}}), ElementsAre(1, 3, 3));
}

TEST(Knee, Noise_MovesItByOneDoublingAtMost) {
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
  std::uniform_real_distribution<double> log_fixed(0, 9);
  std::normal_distribution<double> noise(0, 0.01);
  for (int i = 0; i < 20'000; ++i) {
    const double fixed = std::exp(log_fixed(random));
    std::vector<CurvePoint> curve = Doublings(1 << 14, fixed);
    const auto truth = static_cast<double>(FindKnee(curve));
    for (CurvePoint& point : curve) {
      point.samples_per_s *= 1 + noise(random);
    }
    ASSERT_LE(std::abs(static_cast<double>(FindKnee(curve)) - truth), 1) << fixed;
  }
}

}  // namespace
}  // namespace ddl::tune
