// Where throughput stops to rise with the micro-batch: the knee of the curve. Pure.
//
// Satopaa et al. 2011 ("Finding a Kneedle in a Haystack") call knee the point beyond
// which a greater effort is no longer worth what it brings. Here the effort is memory,
// and a definition that depends on neither the range nor the number of trials is
// wanted, so: the knee is the smallest micro-batch with kKneePart of the best
// throughput measured (a device that is busy more than 90 % of the time is the usual
// goal). A curve that still rises where the trials end has not shown its best, and no
// knee: StillRises(). Against noise, the curve is smoothed before by running medians of three with
// Tukey's rule for the last point (Tukey 1977, "Exploratory Data Analysis"), which
// leaves a curve that only rises as it is, and takes out a trial that was disturbed or
// lucky; and the best is the mean of what comes within kBestPart of the highest.
#ifndef DDLAUNCH_LAUNCHER_TUNE_KNEE_H_
#define DDLAUNCH_LAUNCHER_TUNE_KNEE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddl::tune {

inline constexpr double kKneePart = 0.9;
inline constexpr double kBestPart = 0.95;

struct CurvePoint {
  std::int64_t micro_batch_size = 0;
  double samples_per_s = 0;
};

// The throughputs of `curve`, which is in ascending order of the micro-batch.
std::vector<double> SmoothedThroughput(const std::vector<CurvePoint>& curve);

// The best throughput of `curve`, smoothed. REQUIRES: as FindKnee.
double BestThroughput(const std::vector<CurvePoint>& curve);

// The knee's place in `curve`. REQUIRES: ascending order, not empty.
std::size_t FindKnee(const std::vector<CurvePoint>& curve);

// The last point of `curve` is still below kKneePart of what larger micro-batches would
// bring. A step that takes a fixed time and a time for each sample does m / (f + m) of
// its plateau; so where nine tenths of it are reached, a doubling of the micro-batch
// gains 10 %, one to the k-fold (k - 1) x 10 %. The gain is that over the best at
// half the last micro-batch or less. Nothing speaks against the rise of a single point.
// REQUIRES: as FindKnee.
bool StillRises(const std::vector<CurvePoint>& curve);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_KNEE_H_
