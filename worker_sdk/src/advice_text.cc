// What each kind of advice says.
#include "worker_sdk/src/advice_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "ddl/sampler.h"
#include "worker_sdk/src/advisor.h"
#include "worker_sdk/src/micro_batches.h"

namespace ddl::internal::text {
namespace {

constexpr double kPercent = 100;
constexpr std::size_t kMostNamed = 3;  // of a list

std::string Fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string Percent(double share) {
  return Fixed(kPercent * share, 0) + " %";
}

std::string Milliseconds(double seconds) {
  constexpr double kPerSecond = 1000;
  return Fixed(kPerSecond * seconds, 1) + " ms";
}

// A count of samples: whole above 10, else one digit more.
std::string Samples(double value) {
  constexpr double kWhole = 10;
  return Fixed(value, value < kWhole && value != std::floor(value) ? 1 : 0);
}

std::string Count(std::int64_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string Rank(int rank) {
  return "rank " + std::to_string(rank);
}

// "rank 3", "ranks 1, 4 and 5", "ranks 0, 1, 2 and 7 more".
std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) {
    return Rank(ranks[0]);
  }
  std::string text = "ranks ";
  const std::size_t named = ranks.size() <= kMostNamed + 1 ? ranks.size() : kMostNamed;
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  if (named < ranks.size()) {
    text += " and " + std::to_string(ranks.size() - named) + " more";
  }
  return text;
}

}  // namespace

std::string NoiseScale(double scale, double global_batch, std::int64_t readings) {
  std::string text = "the gradient noise scale is about " + Samples(scale) + " samples (" +
                     std::to_string(readings) + " readings), the global batch is " +
                     Samples(global_batch) + ": ";
  // Steps, or samples, that a batch of another size needs, over those of this one.
  const auto steps = [scale](double batch) { return 1 + scale / batch; };
  if (global_batch * Advisor::kNoiseFactor <= scale) {
    return text +
           "far below it. A larger batch would train in fewer steps with few more samples: " +
           Samples(2 * global_batch) + " needs about " +
           Percent(steps(2 * global_batch) / steps(global_batch)) + " of the steps";
  }
  if (global_batch >= Advisor::kNoiseFactor * scale) {
    return text + "far above it. Returns diminish: half the batch, " + Samples(global_batch / 2) +
           ", needs about " + Percent(steps(global_batch / 2) / steps(global_batch)) +
           " of the steps, each of half the samples";
  }
  return text + "near it, where steps and samples are in balance";
}

std::string SameSamples(int rank, int other, std::int64_t count) {
  return Rank(rank) + " and " + Rank(other) + " read the same samples: all of the first " +
         std::to_string(count) +
         " of the epoch. Each sample would count twice, and others not at all; give the sampler "
         "this rank's own rank and world size (ddl::DistributedSampler; in PyTorch "
         "DistributedSampler with rank=), and shuffle with the same seed on every rank";
}

std::string DifferentEpochs(int rank, std::int64_t epoch, int other, std::int64_t other_epoch) {
  return Rank(rank) + " is in epoch " + std::to_string(epoch) + ", " + Rank(other) + " in epoch " +
         std::to_string(other_epoch) +
         ": their orders differ, so samples come twice or not at all; call StartEpoch (set_epoch) "
         "with the same epoch on every rank";
}

std::string SameOrder(std::int64_t epoch, std::int64_t count) {
  return "epoch " + std::to_string(epoch) +
         " began with the same samples in the same order as the one before (the first " +
         std::to_string(count) + "): call StartEpoch (set_epoch) with the next epoch's number";
}

std::string SmallBatchNorm(std::int64_t micro_batch) {
  return "BatchNorm over a micro-batch of " + Count(micro_batch, "sample", "samples") +
         ": its statistics are too noisy below " + std::to_string(Advisor::kLeastBatchNorm) +
         "; use a larger micro-batch with less accumulation, synchronised BatchNorm, or GroupNorm";
}

std::optional<std::string> OneSampleTail(const SampleFacts& data, std::int64_t micro_batch,
                                         int world_size) {
  std::vector<int> ranks;
  std::int64_t share = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const std::int64_t size = ShareOf(data.tail_samples, rank, world_size).size();
    // The last micro-batch of a share is its smallest.
    if (size > 0 && size / MicroSteps(size, micro_batch) == 1) {
      ranks.push_back(rank);
      share = size;
    }
  }
  if (ranks.empty() || data.global_batch < 1) {
    return std::nullopt;
  }
  const std::int64_t whole = data.epoch_samples / data.global_batch;
  return "an epoch of " + std::to_string(data.epoch_samples) + " samples is " +
         Count(whole, "step", "steps") + " of " + std::to_string(data.global_batch) +
         " and one of " + std::to_string(data.tail_samples) + ", of which " + Ranks(ranks) +
         (ranks.size() == 1 ? " gets " : " get ") + std::to_string(share) +
         " in micro-batches of up to " + std::to_string(micro_batch) +
         ": the last has one sample, and BatchNorm has no statistics of one sample; drop the tail "
         "(SamplerOptions::tail), or choose another batch size";
}

std::string OneSample(int rank, std::int64_t step) {
  return "a micro-batch of one sample on " + Rank(rank) + " in step " + std::to_string(step) +
         ": BatchNorm has no statistics of one sample; drop the tail of the epoch, or choose "
         "another batch size";
}

std::string UnequalBatches(const std::vector<int>& ranks, int world_size) {
  return Ranks(ranks) + " of " + std::to_string(world_size) +
         (ranks.size() == 1 ? " has no more batches while others have: it takes part"
                            : " have no more batches while others have: they take part") +
         " with weight 0 until all are done. Share the samples evenly (ddl::DistributedSampler) to "
         "keep every rank busy";
}

std::string UnusedParameters(const std::vector<PartlyUsed>& parameters, std::int64_t ranks,
                             std::int64_t step) {
  std::string text;
  const std::size_t named = std::min(parameters.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) {
    const PartlyUsed& parameter = parameters[i];
    text += i == 0 ? "parameter \"" : ", \"";
    text += parameter.name + "\" got no gradient on ";
    text += parameter.without == 1
                ? "rank " + std::to_string(parameter.rank) + " (1 of " + std::to_string(ranks) + ")"
                : std::to_string(parameter.without) + " of " + std::to_string(ranks) + " ranks";
  }
  if (named < parameters.size()) {
    text += " and " + std::to_string(parameters.size() - named) + " more parameters on some";
  }
  return text + " in step " + std::to_string(step) +
         ", but did on others: it counts as zero there, and the mean is over all samples. If all "
         "ranks should run the same layers, look for a branch that depends on the rank or the data";
}

std::string Waiting(double waited, double step_s, std::int64_t steps, int world_size,
                    int least_rank, double least) {
  std::string text = "scaling efficiency is " + Percent(1 - waited) + ": over " +
                     std::to_string(steps) + " steps of " + Milliseconds(step_s) + ", " +
                     std::to_string(world_size) + " ranks spent " + Percent(waited) +
                     " in communication and waiting, and " + Milliseconds((1 - waited) * step_s) +
                     " a step in their own work. ";
  if (2 * least < waited) {
    return text + Rank(least_rank) + " waits least (" + Percent(least) +
           "), so the others wait for it: look for more work or fewer CPUs there";
  }
  return text +
         "All ranks wait alike: a larger micro-batch, more accumulation, fewer ranks or a faster "
         "network would help";
}

std::string Accumulation(std::int64_t micro_steps, std::int64_t micro_batch, double memory) {
  return "a step takes " + std::to_string(micro_steps) + " micro-steps of up to " +
         Count(micro_batch, "sample", "samples") + " a rank, but memory was used to " +
         Percent(memory) + " at most: a micro-batch of " + std::to_string(2 * micro_batch) +
         " would fit (at most " + Percent(2 * memory) + ") and take " +
         std::to_string((micro_steps + 1) / 2) +
         " for the same global batch; \"ddlaunch tune\" measures whether that is faster";
}

}  // namespace ddl::internal::text
