// Dice: seeded choices, the same on every machine. Not thread safe.
#ifndef DDLAUNCH_TESTS_SIM_DICE_H_
#define DDLAUNCH_TESTS_SIM_DICE_H_

#include <chrono>
#include <cstdint>

#include "agent/base/clock.h"

namespace ddl::sim {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  // lowest..highest
  std::int64_t Between(std::int64_t lowest, std::int64_t highest) {
    const auto span = static_cast<std::uint64_t>(highest - lowest) + 1;
    return lowest + static_cast<std::int64_t>(Next() % span);
  }
  int Int(int lowest, int highest) { return static_cast<int>(Between(lowest, highest)); }
  bool Chance(int percent) { return Between(1, 100) <= percent; }
  // In steps of a microsecond, so that two things seldom happen at one instant.
  Duration Ms(std::int64_t lowest, std::int64_t highest) {
    return std::chrono::microseconds(Between(lowest * 1'000, highest * 1'000));
  }

 private:
  // SplitMix64 (Steele, Lea and Flood, 2014).
  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  std::uint64_t state_;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_DICE_H_
