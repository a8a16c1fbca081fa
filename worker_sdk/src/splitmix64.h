// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", 2014), with the constants of Vigna's reference: the same numbers
// on every platform. A plain value.
#ifndef DDLAUNCH_WORKER_SDK_SRC_SPLITMIX64_H_
#define DDLAUNCH_WORKER_SDK_SRC_SPLITMIX64_H_

#include <cstdint>
#include <limits>

namespace ddl::internal {

class SplitMix64 {
 public:
  // Odd: its multiples run through all 2^64 values before one comes again.
  static constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15U;

  explicit SplitMix64(std::uint64_t state) : state_(state) {}

  std::uint64_t Next() {
    state_ += kGamma;
    return Mix(state_);
  }

  // Uniform in 0 .. bound-1: values that would make it uneven are drawn again.
  std::uint64_t Below(std::uint64_t bound) {
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t limit = most - (most % bound + 1) % bound;
    std::uint64_t value = Next();
    while (value > limit) {
      value = Next();
    }
    return value % bound;
  }

  // One to one on 64 bits: different numbers stay different.
  static std::uint64_t Mix(std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_SPLITMIX64_H_
