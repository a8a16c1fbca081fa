// The micro-batches of a rank's share: as few as the cap allows, alike to one sample,
// the larger ones first. So a share that the cap does not divide leaves no rest of a
// single sample: 9 of at most 4 are 3 + 3 + 3, not 4 + 4 + 1.
#ifndef DDLAUNCH_WORKER_SDK_SRC_MICRO_BATCHES_H_
#define DDLAUNCH_WORKER_SDK_SRC_MICRO_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddl::internal {

// Micro-batches of `count` samples, of at most `most` each. REQUIRES: count >= 0,
// most >= 1.
constexpr std::int64_t MicroSteps(std::int64_t count, std::int64_t most) {
  return count / most + (count % most > 0 ? 1 : 0);
}

inline std::vector<std::span<const std::int64_t>> SplitShare(std::span<const std::int64_t> samples,
                                                             std::int64_t most) {
  std::vector<std::span<const std::int64_t>> parts;
  auto left = static_cast<std::int64_t>(samples.size());
  for (std::int64_t steps = MicroSteps(left, most); steps > 0; --steps) {
    const std::int64_t size = MicroSteps(left, steps);  // the mean of what is left, rounded up
    parts.push_back(samples.subspan(samples.size() - static_cast<std::size_t>(left),
                                    static_cast<std::size_t>(size)));
    left -= size;
  }
  return parts;
}

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_MICRO_BATCHES_H_
