// Distinct seeds by rank and epoch.
#include "ddl/seeds.h"

#include "agent/base/check.h"
#include "worker_sdk/src/splitmix64.h"

namespace ddl {

std::uint64_t DataSeed(std::uint64_t seed, int rank, std::int64_t epoch) {
  DDL_CHECK(rank >= 0 && epoch >= 0);
  using internal::SplitMix64;
  // Rank and epoch in one number; every step from there is one to one. The gamma
  // keeps (0, 0, 0) from being 0, and the seed of rank 0 from being the plain one.
  constexpr unsigned kRankBits = 24;
  const std::uint64_t place =
      (static_cast<std::uint64_t>(epoch) << kRankBits) ^ static_cast<std::uint64_t>(rank);
  return SplitMix64::Mix(SplitMix64::Mix(seed + SplitMix64::kGamma) +
                         (place + 1) * SplitMix64::kGamma);
}

}  // namespace ddl
