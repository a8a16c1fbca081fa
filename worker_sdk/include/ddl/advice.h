// Advice at run time: what DataParallel notices while it trains.
//
// Rank 0 prints each kind of advice at most once, on stderr, as
// "ddl: advice: ..." with the numbers behind it. It is advice only: training is
// the same, bit for bit, with it and without. What is looked at, and when:
//
//   noise scale    the gradient noise scale (McCandlish et al. 2018) against the
//                  global batch: 50 readings, one in every fourth step whose ranks
//                  have equal shares; world > 1. "Far" from it is a factor of 4:
//                  there a batch needs 1.25 times the fewest steps, or samples,
//                  possible. It grows while training goes on
//   the data       ranks that read the same samples, that are in different epochs,
//                  or whose order did not change from one epoch to the next: by the
//                  first two steps of epochs. RunStep's share has the samples;
//                  without them nothing is said
//   BatchNorm      micro-batches of fewer than 4 samples, or of a single one (an
//                  epoch's last), where batch_norm is declared
//   shares         ranks that ran out of batches before the others (AnyHasMore)
//   parameters     that got a gradient on some ranks only, in the first two steps:
//                  one whose elements are all 0 counts as without
//   waiting        scaling efficiency, the share of a step's time that is not spent
//                  in collectives, under 75 %: the mean over the ranks and over 100
//                  steps, after the first 10. Nothing is said where a rank's own
//                  work is under kLeastOwnStepSeconds a step
//   accumulation   where a micro-batch of twice the size would need at most 90 % of
//                  the device's memory, after the same steps. Nothing is said once
//                  memory has run out, nor beyond --max-micro-batch-size
//
// It costs two passes over the gradients in every fourth step until the noise scale
// is known (at most 800 steps), 7 more numbers in the all-reduce of the step's loss,
// and a handful of small all-reduces at the beginning.
#ifndef DDL_ADVICE_H_
#define DDL_ADVICE_H_

#include <cstdint>

namespace ddl {

// Steps with less work of a rank's own than this, in seconds, are nearly all latency,
// wherever they run: they say nothing of how well a cluster suits the model.
inline constexpr double kLeastOwnStepSeconds = 0.001;

struct AdviceOptions {
  bool enabled = true;
  // The model has BatchNorm layers whose statistics are of one rank's micro-batch.
  bool batch_norm = false;
  // All the memory of this rank's device. With it, and the peak of the same memory
  // that DataParallelOptions::peak_memory_bytes tells, accumulation is judged, where
  // every rank has both. 0: it is not.
  std::int64_t device_memory_bytes = 0;
};

}  // namespace ddl

#endif  // DDL_ADVICE_H_
