// Advice at run time: what DataParallel notices while it trains.
//
// Rank 0 prints each kind of advice at most once, on stderr, as
// "ddl: advice: ..." with the numbers behind it. It is advice only: training is
// the same, bit for bit, with it and without. What is looked at:
//
//   - the gradient noise scale against the global batch (McCandlish et al. 2018)
//   - ranks that read the same samples, that are in different epochs, or whose
//     order did not change from one epoch to the next (RunStep's share has the
//     samples; without them nothing is said)
//   - BatchNorm over micro-batches of fewer than 4 samples, or of a single one
//   - ranks that ran out of batches before the others (AnyHasMore)
//   - parameters that got a gradient on some ranks only, in the first steps
//   - time spent waiting for other ranks: scaling efficiency under 75 %
//   - accumulation where memory would allow a larger micro-batch
#ifndef DDL_ADVICE_H_
#define DDL_ADVICE_H_

#include <cstdint>

namespace ddl {

struct AdviceOptions {
  bool enabled = true;
  // The model has BatchNorm layers whose statistics are of one rank's micro-batch.
  bool batch_norm = false;
  // All the memory of this rank's device; with it, and the peak that
  // DataParallelOptions::peak_memory_bytes tells, accumulation is judged. 0: it is
  // not.
  std::int64_t device_memory_bytes = 0;
};

}  // namespace ddl

#endif  // DDL_ADVICE_H_
