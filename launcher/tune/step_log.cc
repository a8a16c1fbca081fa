// Lines of numbers, and medians of them: see step_log.h.
#include "launcher/tune/step_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

namespace ddl::tune {
namespace {

enum Field : std::uint8_t { kNumber, kSamples, kSeconds, kLoss, kPeakBytes, kNumFields };

std::optional<Step> ParseStep(std::string_view line) {
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  std::array<double, kNumFields> fields{};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), fields[i]);
    line.remove_prefix(static_cast<std::size_t>(stop - line.data()));
    const bool is_last = i + 1 == fields.size();
    if (error != std::errc() || (is_last ? !line.empty() : !line.starts_with(','))) {
      return std::nullopt;
    }
    line.remove_prefix(is_last ? 0 : 1);
  }
  constexpr double kMostBytes = 1e18;
  const bool makes_sense = std::isfinite(fields[kSamples]) && fields[kSamples] > 0 &&
                           std::isfinite(fields[kSeconds]) && fields[kSeconds] >= 0 &&
                           fields[kPeakBytes] >= 0 && fields[kPeakBytes] < kMostBytes;
  return makes_sense ? std::optional(Step{fields[kSamples], fields[kSeconds], fields[kLoss],
                                          static_cast<std::int64_t>(fields[kPeakBytes])})
                     : std::nullopt;
}

// The value that this part of `values` is below. REQUIRES: not empty.
double Quantile(std::vector<double> values, double part) {
  const auto index = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size()));
  const auto at = values.begin() +
                  std::min<std::ptrdiff_t>(index, static_cast<std::ptrdiff_t>(values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

void ReadSteps(std::string_view text, std::size_t* position, std::vector<Step>* steps,
               std::int64_t* strange_lines) {
  for (std::size_t end = 0; (end = text.find('\n', *position)) != std::string_view::npos;
       *position = end + 1) {
    if (const auto step = ParseStep(text.substr(*position, end - *position))) {
      steps->push_back(*step);
    } else {
      ++*strange_lines;
    }
  }
}

Measurement Measure(const std::vector<Step>& steps) {
  constexpr std::size_t kShortTrial = 4;  // one step in so many is warm-up
  constexpr double kWhole = 0.9;          // texts differ in their tokens
  constexpr double kMostSteps = 0.9;
  constexpr double kHalf = 0.5;
  Measurement result;
  for (const Step& step : steps) {
    result.peak_bytes = std::max(result.peak_bytes, step.peak_bytes);
  }
  const std::size_t skipped =
      std::min(kWarmUpSteps, std::max<std::size_t>(1, steps.size() / kShortTrial));
  if (steps.size() <= skipped) {
    return result;
  }
  std::vector<double> samples;
  for (std::size_t i = skipped; i < steps.size(); ++i) {
    samples.push_back(steps[i].samples);
  }
  result.samples_per_step = Quantile(std::move(samples), kMostSteps);
  std::vector<double> rates;
  for (std::size_t i = skipped; i < steps.size(); ++i) {
    if (steps[i].samples >= kWhole * result.samples_per_step && steps[i].seconds > 0) {
      rates.push_back(steps[i].samples / steps[i].seconds);
      result.seconds += steps[i].seconds;
    }
  }
  if (!rates.empty()) {
    result.steps = static_cast<std::int64_t>(rates.size());
    result.samples_per_s = Quantile(std::move(rates), kHalf);
  }
  return result;
}

double LossDifference(const std::vector<Step>& a, const std::vector<Step>& b) {
  double difference = 0;
  double size = 0;
  const std::size_t count = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(a[i].loss) || !std::isfinite(b[i].loss)) {
      if (std::isfinite(a[i].loss) != std::isfinite(b[i].loss)) {
        return std::numeric_limits<double>::infinity();
      }
      continue;
    }
    difference += std::abs(a[i].loss - b[i].loss);
    size += (std::abs(a[i].loss) + std::abs(b[i].loss)) / 2;
  }
  return size > 0 ? difference / size : -1;
}

}  // namespace ddl::tune
