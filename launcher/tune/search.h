// Which micro-batch to try next. A pure state machine: it is told how each trial
// ended, and knows no process, clock or file.
//
//   raise    the first, then twice as much, until a trial does not fit (out of
//            memory, more than its part of the memory, more samples than the data
//            has), the user's bound is reached, or three trials in a row gained
//            nothing: the curve is flat
//   refine   between neighbours: the largest that fits, where the curve still rises
//            at the end of memory; between the knee and the one below it, where there
//            is a knee
//   repeat   a trial that did much worse than both its neighbours: something else
//            was at work on the machine. The better one counts
//
// The choice is the knee (knee.h) among the trials that fit; where the curve still
// rises at the largest of them, that one.
#ifndef DDLAUNCH_LAUNCHER_TUNE_SEARCH_H_
#define DDLAUNCH_LAUNCHER_TUNE_SEARCH_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/tune/knee.h"

namespace ddl::tune {

enum class Outcome : std::uint8_t {
  kFits,
  kOutOfMemory,
  kTooMuchMemory,  // it ran, with more than a trial may have
  kDataEnds,       // the data has fewer samples than a step wants
  kTooSlow,        // not one step in the time given
  kFailed,         // for another reason
};

// Why a micro-batch is the choice.
enum class Reason : std::uint8_t {
  kKnee,
  // It is the largest that fits, the curve still rises there, and what ended it is
  kBound,       // the user's bound
  kMemory,      // out of memory, or more than its part
  kData,        // fewer samples
  kFailure,     // a trial that failed, or had no step in its time
  kUnfinished,  // nothing yet: the search has not come further
};

struct Choice {
  std::int64_t micro_batch_size = 0;
  Reason reason = Reason::kKnee;
};

class Search {
 public:
  struct Options {
    std::int64_t first = 1;
    std::int64_t most = std::int64_t{1} << 40U;
  };

  explicit Search(const Options& options) : options_(options) {}

  // The micro-batch to try; nothing: all is measured, or nothing can be.
  [[nodiscard]] std::optional<std::int64_t> Next() const;
  // How the trial of `micro` ended; the throughput counts when it fits.
  void Record(std::int64_t micro, Outcome outcome, double samples_per_s);

  // Those that fit, in ascending order.
  [[nodiscard]] std::vector<CurvePoint> Curve() const;
  // Nothing: none fits.
  [[nodiscard]] std::optional<Choice> Chosen() const;

 private:
  [[nodiscard]] bool IsFlat() const;
  [[nodiscard]] Reason End() const;
  [[nodiscard]] std::optional<std::int64_t> Raised() const;
  [[nodiscard]] std::optional<std::int64_t> Refined() const;
  [[nodiscard]] std::optional<std::int64_t> Disturbed() const;

  Options options_;
  std::map<std::int64_t, double> fits_;  // micro-batch -> samples/s
  // The smallest that does not fit, and how that showed.
  std::optional<std::int64_t> too_large_;
  Outcome why_too_large_ = Outcome::kFits;
  int refinements_ = 0;
  std::set<std::int64_t> repeated_;
};

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_SEARCH_H_
