// StepAdvice: gathers an optimizer step's facts for the Advisor inside
// DataParallel, keeps the time, and prints what the Advisor says.
//
// Thread safety: none; DataParallel's thread owns it.
#ifndef DDLAUNCH_WORKER_SDK_SRC_STEP_ADVICE_H_
#define DDLAUNCH_WORKER_SDK_SRC_STEP_ADVICE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/advice.h"
#include "ddl/sampler.h"
#include "worker_sdk/src/advisor.h"

namespace ddl::internal {

using Gradients = std::vector<std::span<const float>>;
using MicroBatches = std::vector<std::span<const std::int64_t>>;

class StepAdvice {
 public:
  using Clock = std::chrono::steady_clock;

  // `gradients`, one for each parameter, are read where they lie, and outlive it.
  StepAdvice(const AdviceOptions& options, int rank, int world_size,
             std::vector<std::string> parameters, Gradients gradients,
             std::function<std::int64_t()> peak_memory_bytes);

  // Where they are known: what the step is made of. Whatever was said of the step
  // before is void: it begins, or is tried again.
  void Begin(const StepShare& share, const MicroBatches& micro_batches);
  // A micro-batch of a step that Begin did not tell of.
  void AddMicroBatch(double samples);

  // Memory ran out, and the step is tried again with a smaller micro-batch. The time
  // that went by so far is nobody's: it counts from here.
  void MemoryRanOut();
  // A larger micro-batch than this is not to be advised.
  void LimitMicroBatch(std::int64_t most) { advisor_.LimitMicroBatch(most); }

  // The sums of step `step`: see advisor.h for the order. `weight`: of this rank.
  [[nodiscard]] Advisor::TotalsArray Totals(double weight, std::int64_t step);
  [[nodiscard]] bool ExchangeDue(const Advisor::TotalsArray& reduced) const {
    return advisor_.ExchangeDue(reduced);
  }
  [[nodiscard]] std::vector<double> Words() const { return advisor_.Words(facts_); }

  // Runs a collective and counts its time.
  template <typename Operation>
  auto Timed(const Operation& operation) {
    const Clock::time_point start = Clock::now();
    auto result = operation();
    communication_ += Clock::now() - start;
    return result;
  }

  // The step is done: the gradients are the mean over all samples, `weight` is of
  // all ranks. Prints what there is to say.
  void Finish(const Advisor::TotalsArray& reduced, double weight, const std::vector<double>& words);

  void RanksAreOut(const std::vector<int>& ranks);

 private:
  void Count(std::int64_t samples);
  void Print();

  Advisor advisor_;
  int rank_;
  Gradients gradients_;
  StepFacts facts_;
  bool told_ = false;  // by Begin
  Clock::time_point last_end_ = Clock::now();
  Clock::duration communication_{};  // since then
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_STEP_ADVICE_H_
