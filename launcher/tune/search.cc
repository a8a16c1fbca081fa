// The steps of the search: see search.h.
#include "launcher/tune/search.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "agent/base/check.h"

namespace ddl::tune {
namespace {

// What a doubling must gain for the curve not to be flat there.
constexpr double kGain = 1.03;
constexpr std::size_t kFlatTrials = 3;
constexpr int kMaxRefinements = 4;

// Between two, neither of them; nothing: they are as near as is worth a trial.
std::optional<std::int64_t> Between(std::int64_t low, std::int64_t high, std::int64_t parts) {
  const std::int64_t gap = high - low;
  return gap > 1 && gap > low / parts ? std::optional(low + gap / 2) : std::nullopt;
}

}  // namespace

void Search::Record(std::int64_t micro, Outcome outcome, double samples_per_s) {
  DDL_CHECK(micro >= 1);
  if (const auto before = fits_.find(micro); before != fits_.end()) {
    repeated_.insert(micro);
    if (outcome == Outcome::kFits) {
      before->second = std::max(before->second, samples_per_s);
    }
    return;
  }
  if (!fits_.empty() && (too_large_.has_value() || micro < fits_.rbegin()->first)) {
    ++refinements_;
  }
  if (outcome == Outcome::kFits) {
    fits_[micro] = samples_per_s;
    return;
  }
  if (micro < too_large_.value_or(std::numeric_limits<std::int64_t>::max())) {
    too_large_ = micro;
    why_too_large_ = outcome;
  }
}

bool Search::IsFlat() const {
  if (fits_.size() <= kFlatTrials) {
    return false;
  }
  const auto tail = std::prev(fits_.end(), kFlatTrials);
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const double before = std::max_element(fits_.begin(), tail, less)->second;
  return std::max_element(tail, fits_.end(), less)->second < kGain * before;
}

std::optional<std::int64_t> Search::Raised() const {
  if (fits_.empty()) {
    if (!too_large_.has_value()) {
      return std::min(options_.first, options_.most);
    }
    // The user's first one was too large.
    return *too_large_ > 1 ? std::optional(*too_large_ / 2) : std::nullopt;
  }
  const std::int64_t largest = fits_.rbegin()->first;
  if (too_large_.has_value() || largest >= options_.most || IsFlat()) {
    return std::nullopt;
  }
  return largest > options_.most / 2 ? options_.most : 2 * largest;
}

std::optional<std::int64_t> Search::Refined() const {
  if (fits_.empty() || refinements_ >= kMaxRefinements) {
    return std::nullopt;
  }
  constexpr std::int64_t kHalf = 2;  // nearer than half as much again
  constexpr std::int64_t kQuarter = 4;
  const Choice choice = *Chosen();
  if (choice.reason == Reason::kMemory) {
    return Between(choice.micro_batch_size, *too_large_, kQuarter);
  }
  const auto at = fits_.find(choice.micro_batch_size);
  if (choice.reason != Reason::kKnee || at == fits_.begin()) {
    return std::nullopt;
  }
  return Between(std::prev(at)->first, choice.micro_batch_size, kHalf);
}

std::optional<std::int64_t> Search::Disturbed() const {
  constexpr double kMuchWorse = 0.85;
  constexpr std::size_t kMostRepeats = 3;
  const std::vector<CurvePoint> curve = Curve();
  for (std::size_t i = 1; i + 1 < curve.size() && repeated_.size() < kMostRepeats; ++i) {
    const double neighbours = std::min(curve[i - 1].samples_per_s, curve[i + 1].samples_per_s);
    const std::int64_t micro = curve[i].micro_batch_size;
    if (curve[i].samples_per_s < kMuchWorse * neighbours && !repeated_.contains(micro)) {
      return micro;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> Search::Next() const {
  for (const auto& next : {Raised(), Disturbed(), Refined()}) {
    if (next.has_value()) {
      return next;
    }
  }
  return std::nullopt;
}

std::vector<CurvePoint> Search::Curve() const {
  std::vector<CurvePoint> curve;
  curve.reserve(fits_.size());
  for (const auto& [micro, samples_per_s] : fits_) {
    curve.push_back({micro, samples_per_s});
  }
  return curve;
}

Reason Search::End() const {
  if (!too_large_.has_value()) {
    return fits_.rbegin()->first >= options_.most ? Reason::kBound : Reason::kUnfinished;
  }
  switch (why_too_large_) {
    case Outcome::kOutOfMemory:
    case Outcome::kTooMuchMemory:
      return Reason::kMemory;
    case Outcome::kDataEnds:
      return Reason::kData;
    default:
      return Reason::kFailure;
  }
}

std::optional<Choice> Search::Chosen() const {
  if (fits_.empty()) {
    return std::nullopt;
  }
  const std::vector<CurvePoint> curve = Curve();
  if (StillRises(curve)) {
    return Choice{curve.back().micro_batch_size, End()};
  }
  return Choice{curve[FindKnee(curve)].micro_batch_size, Reason::kKnee};
}

}  // namespace ddl::tune
