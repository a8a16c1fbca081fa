// Prime factors by trial division and Lehman's method.
#include "agent/plan/divisors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "agent/base/check.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

// floor(sqrt(n)) for 0 <= n < 2^52: a double's root is rounded correctly, and no root
// that is not whole is as near to a whole number as its rounding.
std::int64_t Root(std::int64_t n) {
  return static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
}

// n is odd, above 61 and at most 2^32: the strong test to the bases 2, 7 and 61 is a
// proof below 4,759,123,141 (G. Jaeschke 1993, "On Strong Pseudoprimes to Several
// Bases").
bool IsPrime(std::uint64_t n) {
  const int twos = std::countr_zero(n - 1);
  for (const std::uint64_t base : {2U, 7U, 61U}) {
    std::uint64_t power = 1;  // base^((n - 1) / 2^twos)
    std::uint64_t square = base;
    for (std::uint64_t left = (n - 1) >> static_cast<unsigned>(twos); left > 0; left /= 2) {
      power = left % 2 == 1 ? power * square % n : power;
      square = square * square % n;
    }
    for (int i = 1; i < twos && power != 1 && power != n - 1; ++i) {
      power = power * power % n;
      if (power == 1) {
        return false;
      }
    }
    if (power != 1 && power != n - 1) {
      return false;
    }
  }
  return true;
}

// A prime factor of `n`, which is odd, has no factor up to its cube root B and is no
// prime; `n` itself when it is a prime after all. Lehman's theorem, as in H. Cohen, "A
// Course in Computational Algebraic Number Theory", algorithm 8.2.1: for some k up to B
// there is an a with 4 k n <= a^2 <= 4 k n + B^2, odd for an even k and else k + n
// modulo 4, for which a^2 - 4 k n is a square b^2; the common divisor of a + b and n is
// a factor.
std::int64_t FactorByLehman(std::int64_t n) {
  const auto bound = static_cast<std::int64_t>(std::cbrt(static_cast<double>(n))) + 1;
  for (std::int64_t k = 1; k <= bound; ++k) {
    const std::int64_t kn4 = 4 * k * n;
    const std::int64_t modulus = k % 2 == 0 ? 2 : 4;
    const std::int64_t residue = k % 2 == 0 ? 1 : k + n;
    std::int64_t a = Root(kn4 - 1) + 1;
    a += (residue - a) & (modulus - 1);
    for (; a * a - kn4 <= bound * bound; a += modulus) {
      const std::int64_t square = a * a - kn4;
      const std::int64_t b = Root(square);
      if (b * b != square) {
        continue;
      }
      const std::int64_t divisor = std::gcd(a + b, n);
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
  std::int64_t even_rest = number;
  for (; even_rest % 2 == 0; even_rest /= 2) {
    Add(2);
  }
  // An odd number of this size, which divides three times as fast.
  auto rest = static_cast<std::uint32_t>(even_rest);
  const auto divide_out = [&](std::uint32_t prime) {
    for (; rest % prime == 0; rest /= prime) {
      Add(prime);
    }
  };
  divide_out(3);
  // All other primes are one beside a multiple of 6.
  constexpr std::uint32_t kWheel = 6;
  for (std::uint32_t d = kWheel - 1; std::uint64_t{d} * d * d <= rest; d += kWheel) {
    divide_out(d);
    divide_out(d + 2);
  }
  if (rest > 1) {
    constexpr std::uint32_t kSmall = 61;
    const std::int64_t factor = rest > kSmall && IsPrime(rest) ? rest : FactorByLehman(rest);
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
  std::int64_t best = 1;  // which divides everything
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
