// Advisor: turns plain facts of each optimizer step into advice, each kind once.
// Pure: no thread, clock, output or communication; see ddl/advice.h for what it
// looks at.
//
// One step, on every rank, in this order (DataParallel does it):
//
//   totals = advisor.Totals(facts)        into the all-reduce that the step's loss
//                                         and weight need anyway
//   if ExchangeDue(reduced totals):       equal on all ranks, so all or none do
//     words = advisor.Words(facts)        this rank's words among zeros, into one
//                                         more all-reduce: a gather
//   advisor.Finish(facts, reduced ...)    counts the step; a step that failed and
//                                         is tried again is never finished twice
//   TakeLines()                           rank 0 prints them
//
// Totals has always the same length, also when advice is off: so the sums of loss
// and weight are added in the same order, and training is the same bit for bit. A
// rank whose advice is off takes part with zeros, and keeps track of what was said.
//
// Exchanges are few, as each costs a collective: the first steps of training and of
// the first epochs, one for the time, and when something looks wrong.
#ifndef DDLAUNCH_WORKER_SDK_SRC_ADVISOR_H_
#define DDLAUNCH_WORKER_SDK_SRC_ADVISOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/advice.h"
#include "worker_sdk/src/noise_scale.h"
#include "worker_sdk/src/sample_watch.h"

namespace ddl::internal {

// What this rank knows of the step before anything is reduced.
struct StepFacts {
  // Its number, as the program's messages have it; every rank has the same.
  std::int64_t step = 0;
  // The data; see StepShare. Without samples no advice about them.
  SampleFacts data;
  // Samples (or tokens) of this rank in the step.
  double weight = 0;
  // Micro-steps of this rank, and the samples of its largest and smallest one.
  std::int64_t micro_steps = 0;
  std::int64_t largest_micro_batch = 0;
  std::int64_t smallest_micro_batch = 0;
  // |sum of this rank's gradients|^2, before they are reduced. Asked for by
  // WantsGradientNorm().
  std::optional<double> gradient_sum_norm2;
  // For each parameter, whether any element of this rank's gradient is not 0.
  // Asked for by WantsUsedParameters(); else empty.
  std::vector<bool> used_parameters;
};

// What is known at the end of the step.
struct StepOutcome {
  // From the end of the step before to the end of this one, seconds, and how much
  // of it went by in collectives.
  double step_s = 0;
  double communication_s = 0;
  // |mean gradient over all samples|^2. Asked for by WantsGradientNorm().
  std::optional<double> mean_gradient_norm2;
};

enum class Advice : std::uint8_t {
  kNoiseScale,
  kSameSamples,
  kDifferentEpochs,
  kSameOrder,
  kSmallBatchNorm,
  kOneSampleBatchNorm,
  kUnequalBatches,
  kUnusedParameter,
  kWaiting,
  kAccumulation,
  kCount,
};

struct AdviceLine {
  Advice kind = Advice::kCount;
  std::string text;
};

class Advisor {
 public:
  // Steps after which something is judged, and the thresholds.
  static constexpr std::int64_t kParameterSteps = 2;  // first steps: unused parameters
  static constexpr std::int64_t kNoiseEvery = 4;      // steps between two readings
  static constexpr std::int64_t kNoiseReadings = 50;  // before the noise scale is said
  // Steps after which it is given up: shares that are never equal, or a gradient
  // that drowns in noise.
  static constexpr std::int64_t kNoiseSteps = 4 * kNoiseEvery * kNoiseReadings;
  // The batch is called far from the noise scale at a factor of 4: there a batch
  // needs 1.25 times the fewest steps, or samples, possible.
  static constexpr double kNoiseFactor = 4;
  static constexpr std::int64_t kSettlingSteps = 10;  // not counted: first touches
  static constexpr std::int64_t kWaitingSteps = 100;  // averaged
  static constexpr double kLeastEfficiency = 0.75;
  static constexpr std::int64_t kLeastBatchNorm = 4;
  // A micro-batch of twice the size is taken to need at most twice the memory; it
  // fits below 90 % of all there is. Where memory has run out it is not taken so.
  static constexpr double kMostMemory = 0.9;

  // The elements of Totals.
  enum Total : std::size_t {
    kWeight2,
    kSmallNorm2,
    kReadings,  // ranks that gave a norm
    kWants,     // ranks that ask for an exchange
    kEpochRanks,
    kEpochSum,
    kEpochSum2,  // ranks that know their epoch, and the sums that tell whether all are in one
    kTotals
  };
  using TotalsArray = std::array<double, kTotals>;

  // `parameters`: their names, the same on every rank. `peak_memory_bytes` may be
  // empty; it is called once, or again when a step is tried again.
  Advisor(const AdviceOptions& options, int rank, int world_size,
          std::vector<std::string> parameters, std::function<std::int64_t()> peak_memory_bytes);

  // Facts that cost a pass over the gradients, and so are asked for only in some
  // steps; equal on all ranks where advice is on.
  [[nodiscard]] bool WantsGradientNorm() const;
  [[nodiscard]] bool WantsUsedParameters() const;

  [[nodiscard]] TotalsArray Totals(const StepFacts& facts) const;
  [[nodiscard]] bool ExchangeDue(const TotalsArray& reduced) const;
  [[nodiscard]] std::vector<double> Words(const StepFacts& facts) const;

  // `weight` is that of all ranks; `words` is empty where no exchange was due.
  void Finish(const StepFacts& facts, const TotalsArray& reduced, double weight,
              const std::vector<double>& words, const StepOutcome& outcome);

  // Memory ran out, and micro-batches are smaller from here on. All ranks say so in
  // the same step.
  void MemoryRanOut();
  // No larger micro-batch may be used; 0: none is known.
  void LimitMicroBatch(std::int64_t most) { limit_ = most; }

  // Ranks that have no more batches while others have.
  void RanksAreOut(const std::vector<int>& ranks);

  // What is new, in order. The same on every rank but for what only rank 0 knows.
  [[nodiscard]] std::vector<AdviceLine> TakeLines();

 private:
  // One rank's words in an exchange.
  enum Word : std::size_t {
    kActive,          // 1: has samples, and says which parameters they used
    kEpoch,           // epoch + 1; 0: not known
    kSampleHash,      // order-free, of the samples of the epoch's first steps
    kSampleCount,     // how many those are
    kOrderUnchanged,  // 1: they came in the order of the epoch before
    kOneSample,       // 1: had a micro-batch of one sample
    kWaited,          // mean share of the step's time, plus 1; 0: not known
    kMemory,          // peak / total; 0: not known
    kWords,
  };

  [[nodiscard]] bool Wants(const StepFacts& facts) const;
  [[nodiscard]] bool JudgesTime() const;
  [[nodiscard]] bool HasOneSample(const StepFacts& facts) const;
  [[nodiscard]] double WordOf(const std::vector<double>& words, int rank, std::size_t word) const;
  void Say(Advice kind, std::string text);
  [[nodiscard]] bool Said(Advice kind) const;

  void JudgeNoise(const TotalsArray& reduced, double weight, const StepOutcome& outcome);
  void JudgeBatchNorm(const StepFacts& facts);
  void JudgeData(const std::vector<double>& words, std::int64_t step);
  void JudgeParameters(const std::vector<double>& words, std::int64_t step);
  void JudgeWaiting(const std::vector<double>& words);
  void JudgeMemory(const std::vector<double>& words);

  AdviceOptions options_;
  std::function<std::int64_t()> peak_memory_bytes_;
  int rank_;
  int world_size_;
  std::vector<std::string> parameters_;
  std::int64_t step_ = 0;  // finished ones, of this process
  NoiseScale noise_;
  SampleWatch samples_;
  std::int64_t largest_micro_batch_ = 0;  // so far, of this plan
  // The step of the most micro-steps so far, and the largest micro-batch in it.
  std::int64_t most_micro_steps_ = 0;
  std::int64_t accumulated_micro_batch_ = 0;
  std::int64_t limit_ = 0;  // of the micro-batch; 0: none
  bool memory_ran_out_ = false;
  double step_s_ = 0;  // of the steps that are averaged
  double communication_s_ = 0;
  std::array<bool, static_cast<std::size_t>(Advice::kCount)> said_{};
  std::vector<AdviceLine> lines_;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_ADVISOR_H_
