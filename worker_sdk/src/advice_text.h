// The words of each kind of advice: what was seen, the number behind it, and what
// to do. Pure functions.
#ifndef DDLAUNCH_WORKER_SDK_SRC_ADVICE_TEXT_H_
#define DDLAUNCH_WORKER_SDK_SRC_ADVICE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/sample_watch.h"

namespace ddl::internal::text {

// `scale` and `global_batch` in samples. The consequence is that of McCandlish et
// al. 2018: steps needed ~ 1 + scale / batch, samples needed ~ 1 + batch / scale.
std::string NoiseScale(double scale, double global_batch, std::int64_t readings);

std::string SameSamples(int rank, int other, std::int64_t count);
std::string DifferentEpochs(int rank, std::int64_t epoch, int other, std::int64_t other_epoch);
std::string SameOrder(std::int64_t epoch, std::int64_t count);

std::string SmallBatchNorm(std::int64_t micro_batch);
// Nothing, where no rank's share of the last step leaves a single sample.
std::optional<std::string> OneSampleTail(const SampleFacts& data, std::int64_t micro_batch,
                                         int world_size);
std::string OneSample(int rank, std::int64_t step);

// `ranks` have no more batches, the others have.
std::string UnequalBatches(const std::vector<int>& ranks, int world_size);

// A parameter that `without` ranks gave no gradient; `rank` is the one, if it is one.
struct PartlyUsed {
  std::string name;
  std::int64_t without = 0;
  std::int64_t rank = 0;
};
std::string UnusedParameters(const std::vector<PartlyUsed>& parameters, std::int64_t ranks,
                             std::int64_t step);

// `waited`: mean share of a step's `step_s` seconds; `least`: that of the rank
// that waits least.
std::string Waiting(double waited, double step_s, std::int64_t steps, int world_size,
                    int least_rank, double least);
// `memory`: peak / total.
std::string Accumulation(std::int64_t micro_steps, std::int64_t micro_batch, double memory);

}  // namespace ddl::internal::text

#endif  // DDLAUNCH_WORKER_SDK_SRC_ADVICE_TEXT_H_
