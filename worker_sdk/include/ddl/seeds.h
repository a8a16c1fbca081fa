// Seeds: what must differ between ranks, and what must not.
//
// The model's initial weights must be equal on every rank: give their generator
// the plain seed. The same holds for the order of the samples (DistributedSampler
// takes the plain seed, and the epoch). Augmentation, dropout and other noise must
// differ between ranks and between epochs, or all ranks see the same noise, and an
// interrupted run cannot repeat an epoch: give their generator DataSeed.
#ifndef DDL_SEEDS_H_
#define DDL_SEEDS_H_

#include <cstdint>

namespace ddl {

// A seed for the noise of one rank in one epoch: the same for the same three
// numbers, on every platform. For one `seed`, all ranks below 2^24 and epochs below
// 2^40 have different ones. A resumed run gets the same again; one that resumes in
// mid-epoch should draw by sample, from (DataSeed, sample), to repeat the rest.
// REQUIRES: rank >= 0 and epoch >= 0.
[[nodiscard]] std::uint64_t DataSeed(std::uint64_t seed, int rank, std::int64_t epoch);

}  // namespace ddl

#endif  // DDL_SEEDS_H_
