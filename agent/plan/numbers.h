// Limits and small arithmetic of the plan's files. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_NUMBERS_H_
#define DDLAUNCH_AGENT_PLAN_NUMBERS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace ddl::plan {

// The largest number of a batch or a world. No training comes near it; it keeps
// every product below 2^63 detectable and every number exact as a double.
inline constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40U;
// The most samples of one rank in one optimizer step: their divisors are found in
// microseconds (divisors.h).
inline constexpr std::int64_t kMaxShare = std::int64_t{1} << 32U;
// The most samples of a training, or of a part of it.
inline constexpr std::int64_t kMaxSamples = std::int64_t{1} << 50U;

// a x b x c, nothing when it is beyond kMaxNumber. All are in 1..kMaxNumber.
inline std::optional<std::int64_t> Product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product) || product > kMaxNumber) {
      return std::nullopt;
    }
  }
  return product;
}

// a / b, rounded up. a >= 0, b >= 1.
inline std::int64_t CeilDivide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b == 0 ? 0 : 1);
}

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_NUMBERS_H_
