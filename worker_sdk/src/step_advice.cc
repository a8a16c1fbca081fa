// The dear facts, only in the steps that want them.
#include "worker_sdk/src/step_advice.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace ddl::internal {
namespace {

// Sums side by side, which a compiler makes vectors of; a single one would wait
// for each addition before the next. In float, over blocks so short that nothing
// of weight is lost; the blocks' sums are double.
constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = 64 * kLanes;

double BlockNorm2(std::span<const float> values) {
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += values[i + lane] * values[i + lane];
    }
  }
  for (; i < values.size(); ++i) {
    sums[0] += values[i] * values[i];
  }
  double sum = 0;
  for (const float lane : sums) {
    sum += static_cast<double>(lane);
  }
  return sum;
}

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    sum += BlockNorm2(values.subspan(begin, std::min(kBlock, values.size() - begin)));
  }
  return sum;
}

double SquaredNorm(const Gradients& gradients) {
  double sum = 0;
  for (const std::span<const float> gradient : gradients) {
    sum += SquaredNorm(gradient);
  }
  return sum;
}

double Seconds(StepAdvice::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

StepAdvice::StepAdvice(const AdviceOptions& options, int rank, int world_size,
                       std::vector<std::string> parameters, Gradients gradients,
                       std::function<std::int64_t()> peak_memory_bytes)
    : advisor_(options, rank, world_size, std::move(parameters), std::move(peak_memory_bytes)),
      rank_(rank),
      gradients_(std::move(gradients)) {}

void StepAdvice::Begin(const StepShare& share, const MicroBatches& micro_batches) {
  facts_ = StepFacts();
  facts_.data.epoch = share.epoch;
  facts_.data.step_in_epoch = share.step_in_epoch;
  facts_.data.epoch_samples = share.epoch_samples;
  facts_.data.global_batch = share.global_batch;
  facts_.data.global_samples = share.global_samples;
  facts_.data.tail_samples = share.tail_samples;
  facts_.data.fixed_order = share.fixed_order;
  facts_.data.samples = share.samples;
  for (const std::span<const std::int64_t> micro_batch : micro_batches) {
    Count(static_cast<std::int64_t>(micro_batch.size()));
  }
  told_ = true;
}

void StepAdvice::AddMicroBatch(double samples) {
  if (!told_) {
    Count(static_cast<std::int64_t>(samples));
  }
}

void StepAdvice::Count(std::int64_t samples) {
  facts_.smallest_micro_batch =
      facts_.micro_steps == 0 ? samples : std::min(facts_.smallest_micro_batch, samples);
  facts_.largest_micro_batch = std::max(facts_.largest_micro_batch, samples);
  ++facts_.micro_steps;
}

void StepAdvice::MemoryRanOut() {
  advisor_.MemoryRanOut();
  last_end_ = Clock::now();
  communication_ = {};
}

Advisor::TotalsArray StepAdvice::Totals(double weight, std::int64_t step) {
  facts_.step = step;
  facts_.weight = weight;
  if (advisor_.WantsGradientNorm()) {
    facts_.gradient_sum_norm2 = SquaredNorm(gradients_);
  }
  if (advisor_.WantsUsedParameters()) {
    facts_.used_parameters.clear();
    for (const std::span<const float> gradient : gradients_) {
      facts_.used_parameters.push_back(
          std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
    }
  }
  return advisor_.Totals(facts_);
}

void StepAdvice::Finish(const Advisor::TotalsArray& reduced, double weight,
                        const std::vector<double>& words) {
  StepOutcome outcome;
  if (advisor_.WantsGradientNorm()) {
    outcome.mean_gradient_norm2 = SquaredNorm(gradients_);
  }
  const Clock::time_point now = Clock::now();
  outcome.step_s = Seconds(now - last_end_);
  outcome.communication_s = Seconds(communication_);
  advisor_.Finish(facts_, reduced, weight, words, outcome);
  last_end_ = now;
  communication_ = {};
  facts_ = StepFacts();
  told_ = false;
  Print();
}

void StepAdvice::RanksAreOut(const std::vector<int>& ranks) {
  advisor_.RanksAreOut(ranks);
  Print();
}

void StepAdvice::Print() {
  for (const AdviceLine& line : advisor_.TakeLines()) {
    if (rank_ == 0) {
      std::fprintf(stderr, "ddl: advice: %s\n", line.text.c_str());
    }
  }
}

}  // namespace ddl::internal
