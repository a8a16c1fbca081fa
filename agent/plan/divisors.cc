// Prime factors by trial division and Lehman's method.
#include "agent/plan/divisors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "agent/base/check.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

// floor(sqrt(n)) for 0 <= n < 2^52, where a double's root is off by less than one.
std::int64_t Root(std::int64_t n) {
  auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  root -= root * root > n ? 1 : 0;
  root += (root + 1) * (root + 1) <= n ? 1 : 0;
  return root;
}

// A prime factor of `n`, which has no factor up to its cube root and is no prime;
// `n` itself when it is a prime. Lehman's theorem: if n = p q with both above the
// cube root, then for some k up to it and some a from sqrt(4 k n) to
// sqrt(4 k n) + n^(1/6) / (4 sqrt(k)), a^2 - 4 k n is a square b^2, and the greatest
// common divisor of a + b and n is a factor.
std::int64_t FactorByLehman(std::int64_t n) {
  const double cube_root = std::cbrt(static_cast<double>(n));
  const double sixth_root = std::sqrt(cube_root);
  const auto last = static_cast<std::int64_t>(cube_root) + 1;
  for (std::int64_t k = 1; k <= last; ++k) {
    const std::int64_t kn4 = 4 * k * n;
    const std::int64_t floor_root = Root(kn4);
    const std::int64_t first = floor_root + (floor_root * floor_root < kn4 ? 1 : 0);
    const auto more =
        static_cast<std::int64_t>(sixth_root / (4 * std::sqrt(static_cast<double>(k))));
    for (std::int64_t a = first; a <= first + more; ++a) {
      const std::int64_t square = a * a - kn4;
      const std::int64_t b = Root(square);
      if (b * b != square) {
        continue;
      }
      std::int64_t divisor = n;
      for (std::int64_t rest = a + b; rest != 0;) {
        const std::int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
      }
      if (divisor > 1 && divisor < n) {
        return divisor;
      }
    }
  }
  return n;
}

}  // namespace

Divisors::Divisors(std::int64_t number) : number_(number) {
  DDL_CHECK(number >= 1 && number <= kMaxShare);
  std::int64_t rest = number;
  const auto divide_out = [&](std::int64_t prime) {
    for (; rest % prime == 0; rest /= prime) {
      Add(prime);
    }
  };
  divide_out(2);
  divide_out(3);
  // All other primes are one beside a multiple of 6.
  constexpr std::int64_t kWheel = 6;
  for (std::int64_t d = kWheel - 1; d * d * d <= rest; d += kWheel) {
    divide_out(d);
    divide_out(d + 2);
  }
  if (rest > 1) {
    const std::int64_t factor = FactorByLehman(rest);
    Add(factor);
    if (factor != rest) {
      Add(rest / factor);
    }
  }
}

void Divisors::Add(std::int64_t prime) {
  auto* const end = powers_.begin() + count_;
  auto* const it =
      std::find_if(powers_.begin(), end, [=](const Power& power) { return power.prime == prime; });
  if (it == end) {
    DDL_CHECK(count_ < kMostPrimes);
    ++count_;
    it->prime = prime;
  }
  ++it->exponent;
}

std::int64_t Divisors::Largest(std::size_t index, std::int64_t chosen, std::int64_t limit) const {
  if (index == count_) {
    return chosen;
  }
  std::int64_t best = 0;
  for (int i = 0; i <= powers_[index].exponent && chosen <= limit; ++i) {
    best = std::max(best, Largest(index + 1, chosen, limit));
    chosen *= powers_[index].prime;
  }
  return best;
}

std::int64_t Divisors::AtMost(std::int64_t limit) const {
  return limit >= number_ ? number_ : Largest(0, 1, limit);
}

std::int64_t Divisors::AtLeast(std::int64_t limit) const {
  // A divisor e is at least `limit` when its partner is at most number / limit.
  return number_ / AtMost(number_ / limit);
}

}  // namespace ddl::plan
