// Running medians and the part of the best: see knee.h.
#include "launcher/tune/knee.h"

#include <algorithm>

#include "agent/base/check.h"

namespace ddl::tune {
namespace {

double MedianOfThree(double a, double b, double c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

double Best(const std::vector<double>& smoothed) {
  const double highest = *std::max_element(smoothed.begin(), smoothed.end());
  double sum = 0;
  double count = 0;
  for (const double throughput : smoothed) {
    if (throughput >= kBestPart * highest) {
      sum += throughput;
      ++count;
    }
  }
  return sum / count;
}

}  // namespace

std::vector<double> SmoothedThroughput(const std::vector<CurvePoint>& curve) {
  std::vector<double> smoothed;
  smoothed.reserve(curve.size());
  for (const CurvePoint& point : curve) {
    smoothed.push_back(point.samples_per_s);
  }
  const std::size_t size = curve.size();
  for (std::size_t i = 1; i + 1 < size; ++i) {
    smoothed[i] = MedianOfThree(curve[i - 1].samples_per_s, curve[i].samples_per_s,
                                curve[i + 1].samples_per_s);
  }
  constexpr std::size_t kLeastForEndRule = 4;
  if (size >= kLeastForEndRule) {
    // Its neighbours, continued as a line, against the point itself.
    const double last = smoothed[size - 2];
    const double before = smoothed[size - 3];
    smoothed[size - 1] = MedianOfThree(curve[size - 1].samples_per_s, last, 3 * last - 2 * before);
  }
  return smoothed;
}

double BestThroughput(const std::vector<CurvePoint>& curve) {
  DDL_CHECK(!curve.empty());
  return Best(SmoothedThroughput(curve));
}

std::size_t FindKnee(const std::vector<CurvePoint>& curve) {
  DDL_CHECK(!curve.empty());
  const std::vector<double> smoothed = SmoothedThroughput(curve);
  const double enough = kKneePart * Best(smoothed);
  const auto knee = std::find_if(smoothed.begin(), smoothed.end(),
                                 [enough](double throughput) { return throughput >= enough; });
  return static_cast<std::size_t>(knee - smoothed.begin());
}

bool StillRises(const std::vector<CurvePoint>& curve) {
  DDL_CHECK(!curve.empty());
  const std::vector<double> smoothed = SmoothedThroughput(curve);
  const auto last = static_cast<double>(curve.back().micro_batch_size);
  double before = 0;
  double best_before = 0;
  for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
    const auto micro = static_cast<double>(curve[i].micro_batch_size);
    // Nearer than a doubling, the noise of two trials would decide.
    if (i == 0 || 2 * micro <= last) {
      before = micro;
      best_before = std::max(best_before, smoothed[i]);
    }
  }
  return before == 0 ||
         smoothed.back() > best_before * (kKneePart + (1 - kKneePart) * last / before);
}

}  // namespace ddl::tune
