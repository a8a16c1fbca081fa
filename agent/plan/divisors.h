// The divisors of a number, found in a bounded number of steps.
#ifndef DDLAUNCH_AGENT_PLAN_DIVISORS_H_
#define DDLAUNCH_AGENT_PLAN_DIVISORS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddl::plan {

// All divisors of one number of 1..kMaxShare, by its prime factors. These are found
// by trial division up to the cube root (1625 at most); the rest has two at most, and
// is split, unless it is a prime, by Lehman's method in no more than the cube root of
// steps again (R. S. Lehman 1974, "Factoring Large Integers"). A few microseconds.
class Divisors {
 public:
  explicit Divisors(std::int64_t number);

  // The largest divisor that is not above `limit` (at least 1).
  [[nodiscard]] std::int64_t AtMost(std::int64_t limit) const;
  // The smallest divisor that is not below `limit` (at most the number).
  [[nodiscard]] std::int64_t AtLeast(std::int64_t limit) const;

 private:
  struct Power {
    std::int64_t prime = 0;
    int exponent = 0;
  };
  // The product of the first ten primes is beyond kMaxShare.
  static constexpr std::size_t kMostPrimes = 9;

  void Add(std::int64_t prime);
  // The largest product of `chosen` and powers from `index` on within `limit`.
  [[nodiscard]] std::int64_t Largest(std::size_t index, std::int64_t chosen,
                                     std::int64_t limit) const;

  std::int64_t number_;
  std::array<Power, kMostPrimes> powers_;
  std::size_t count_ = 0;
};

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_DIVISORS_H_
