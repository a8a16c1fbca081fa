// When each kind of advice is due; its words are in advice_text.cc.
#include "worker_sdk/src/advisor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "agent/base/check.h"
#include "worker_sdk/src/advice_text.h"

namespace ddl::internal {
namespace {

// Fewer samples than these may come in the same order, or to two ranks, by chance.
constexpr double kLeastOrder = 8;
constexpr double kLeastSame = 2;
// Epochs of this process whose first samples are compared between ranks: a rank
// that takes another's does so from the start.
constexpr std::int64_t kDataEpochs = 2;

std::size_t Index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

Advisor::Advisor(const AdviceOptions& options, int rank, int world_size,
                 std::vector<std::string> parameters,
                 std::function<std::int64_t()> peak_memory_bytes)
    : options_(options),
      peak_memory_bytes_(std::move(peak_memory_bytes)),
      rank_(rank),
      world_size_(world_size),
      parameters_(std::move(parameters)) {
  DDL_CHECK(rank >= 0 && rank < world_size);
}

// ---- what goes to the other ranks -------------------------------------------

bool Advisor::WantsGradientNorm() const {
  return options_.enabled && world_size_ > 1 && !Said(Advice::kNoiseScale) &&
         step_ % kNoiseEvery == 0 && step_ < kNoiseSteps;
}

bool Advisor::WantsUsedParameters() const {
  return options_.enabled && world_size_ > 1 && step_ < kParameterSteps;
}

bool Advisor::JudgesTime() const {
  return step_ == kSettlingSteps + kWaitingSteps;
}

bool Advisor::HasOneSample(const StepFacts& facts) const {
  return options_.batch_norm && facts.smallest_micro_batch == 1 &&
         std::max(largest_micro_batch_, facts.largest_micro_batch) > 1;
}

bool Advisor::Wants(const StepFacts& facts) const {
  const SampleWatch::View view = samples_.Look(facts.data);
  const bool data = view.fresh && (view.epochs <= kDataEpochs ||
                                   (view.order_unchanged && !Said(Advice::kSameOrder)));
  return options_.enabled && (WantsUsedParameters() || JudgesTime() || data ||
                              (HasOneSample(facts) && !Said(Advice::kOneSampleBatchNorm)));
}

Advisor::TotalsArray Advisor::Totals(const StepFacts& facts) const {
  TotalsArray totals{};
  if (!options_.enabled) {
    return totals;
  }
  totals[kWeight2] = facts.weight * facts.weight;
  if (facts.gradient_sum_norm2.has_value() && facts.weight > 0) {
    // Of the rank's mean gradient.
    totals[kSmallNorm2] = *facts.gradient_sum_norm2 / totals[kWeight2];
    totals[kReadings] = 1;
  }
  totals[kWants] = Wants(facts) ? 1 : 0;
  if (facts.data.epoch >= 0) {
    const auto epoch = static_cast<double>(facts.data.epoch);
    totals[kEpochRanks] = 1;
    totals[kEpochSum] = epoch;
    totals[kEpochSum2] = epoch * epoch;
  }
  return totals;
}

bool Advisor::ExchangeDue(const TotalsArray& reduced) const {
  // Cauchy-Schwarz again: unequal numbers.
  const bool epochs_differ =
      reduced[kEpochRanks] * reduced[kEpochSum2] != reduced[kEpochSum] * reduced[kEpochSum];
  return reduced[kWants] > 0 || (epochs_differ && !Said(Advice::kDifferentEpochs));
}

std::vector<double> Advisor::Words(const StepFacts& facts) const {
  // The steps are counted alike on all ranks, and so is the length.
  const std::size_t parameters = step_ < kParameterSteps ? 2 * parameters_.size() : 0;
  const std::size_t ranks = kWords * Index(world_size_);
  std::vector<double> words(ranks + parameters);
  if (!options_.enabled) {
    return words;
  }
  const std::span<double> mine = std::span(words).subspan(kWords * Index(rank_), kWords);
  const SampleWatch::View view = samples_.Look(facts.data);
  mine[kEpoch] = static_cast<double>(view.epoch + 1);
  mine[kSampleHash] = view.hash;
  mine[kSampleCount] = static_cast<double>(view.count);
  mine[kOrderUnchanged] = view.order_unchanged ? 1 : 0;
  mine[kOneSample] = HasOneSample(facts) ? 1 : 0;
  if (JudgesTime() && step_s_ > 0) {
    mine[kWaited] = 1 + communication_s_ / step_s_;
  }
  if (JudgesTime() && peak_memory_bytes_ && options_.device_memory_bytes > 0) {
    mine[kMemory] = static_cast<double>(peak_memory_bytes_()) /
                    static_cast<double>(options_.device_memory_bytes);
  }
  if (parameters > 0 && facts.weight > 0 && facts.used_parameters.size() == parameters_.size()) {
    mine[kActive] = 1;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      words[ranks + 2 * i] = facts.used_parameters[i] ? 1 : 0;
      words[ranks + 2 * i + 1] = facts.used_parameters[i] ? 0 : rank_;
    }
  }
  return words;
}

double Advisor::WordOf(const std::vector<double>& words, int rank, std::size_t word) const {
  return words[kWords * Index(rank) + word];
}

// ---- the end of a step ------------------------------------------------------

void Advisor::Finish(const StepFacts& facts, const TotalsArray& reduced, double weight,
                     const std::vector<double>& words, const StepOutcome& outcome) {
  if (options_.enabled) {
    largest_micro_batch_ = std::max(largest_micro_batch_, facts.largest_micro_batch);
    if (std::pair(facts.micro_steps, facts.largest_micro_batch) >
        std::pair(most_micro_steps_, accumulated_micro_batch_)) {
      most_micro_steps_ = facts.micro_steps;
      accumulated_micro_batch_ = facts.largest_micro_batch;
    }
    JudgeNoise(reduced, weight, outcome);
    JudgeBatchNorm(facts);
    samples_.Commit(facts.data);
    if (step_ >= kSettlingSteps && step_ < kSettlingSteps + kWaitingSteps) {
      step_s_ += outcome.step_s;
      communication_s_ += outcome.communication_s;
    }
  }
  if (!words.empty()) {
    JudgeData(words, facts.step);
    JudgeParameters(words, facts.step);
    JudgeWaiting(words);
    JudgeMemory(words);
  }
  ++step_;
}

void Advisor::MemoryRanOut() {
  memory_ran_out_ = true;
  largest_micro_batch_ = 0;
  most_micro_steps_ = 0;
  accumulated_micro_batch_ = 0;
}

void Advisor::RanksAreOut(const std::vector<int>& ranks) {
  Say(Advice::kUnequalBatches, text::UnequalBatches(ranks, world_size_));
}

bool Advisor::Said(Advice kind) const {
  return said_[static_cast<std::size_t>(kind)];
}

void Advisor::Say(Advice kind, std::string text) {
  if (!Said(kind)) {
    said_[static_cast<std::size_t>(kind)] = true;
    if (options_.enabled) {
      lines_.push_back({kind, std::move(text)});
    }
  }
}

std::vector<AdviceLine> Advisor::TakeLines() {
  return std::exchange(lines_, {});
}

// ---- one function a subject -------------------------------------------------

void Advisor::JudgeNoise(const TotalsArray& reduced, double weight, const StepOutcome& outcome) {
  const double world = world_size_;
  // Equal shares, by Cauchy-Schwarz; exact, as they are whole numbers.
  const bool equal = reduced[kWeight2] * world == weight * weight;
  if (!outcome.mean_gradient_norm2.has_value() || reduced[kReadings] != world || !equal) {
    return;
  }
  noise_.Add(weight / world, reduced[kSmallNorm2] / world, weight, *outcome.mean_gradient_norm2);
  const std::optional<double> scale = noise_.Samples();
  if (noise_.readings() >= kNoiseReadings && scale.has_value()) {
    Say(Advice::kNoiseScale, text::NoiseScale(*scale, weight, noise_.readings()));
  }
}

void Advisor::JudgeBatchNorm(const StepFacts& facts) {
  if (!options_.batch_norm || facts.largest_micro_batch == 0) {
    return;
  }
  const SampleFacts& data = facts.data;
  const bool complete = data.global_batch == 0 || data.global_samples >= data.global_batch;
  if (complete && facts.largest_micro_batch < kLeastBatchNorm) {
    Say(Advice::kSmallBatchNorm, text::SmallBatchNorm(facts.largest_micro_batch));
  }
  if (complete && data.tail_samples > 0 && facts.largest_micro_batch > 1) {
    const auto tail = text::OneSampleTail(data, facts.largest_micro_batch, world_size_);
    if (tail.has_value()) {
      Say(Advice::kOneSampleBatchNorm, *tail);
    }
  }
}

void Advisor::JudgeData(const std::vector<double>& words, std::int64_t step) {
  std::map<double, int> epochs;                      // the first rank that is in it
  std::map<std::pair<double, double>, int> samples;  // (epoch, hash): the same
  double count = 0;
  bool unchanged = true;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (WordOf(words, rank, kOneSample) > 0) {
      Say(Advice::kOneSampleBatchNorm, text::OneSample(rank, step));
    }
    const double epoch = WordOf(words, rank, kEpoch);
    const double rank_count = WordOf(words, rank, kSampleCount);
    if (epoch == 0) {
      continue;  // it says nothing of its data
    }
    epochs.try_emplace(epoch, rank);
    count += rank_count;
    unchanged = unchanged && (rank_count == 0 || WordOf(words, rank, kOrderUnchanged) > 0);
    if (rank_count < kLeastSame) {
      continue;
    }
    const auto [first, is_new] =
        samples.try_emplace({epoch, WordOf(words, rank, kSampleHash)}, rank);
    if (!is_new) {
      Say(Advice::kSameSamples,
          text::SameSamples(first->second, rank, static_cast<std::int64_t>(rank_count)));
    }
  }
  if (epochs.size() > 1) {
    const auto [one, one_rank] = *epochs.begin();
    const auto [other, other_rank] = *epochs.rbegin();
    Say(Advice::kDifferentEpochs,
        text::DifferentEpochs(one_rank, static_cast<std::int64_t>(one) - 1, other_rank,
                              static_cast<std::int64_t>(other) - 1));
  }
  if (epochs.size() == 1 && unchanged && count >= kLeastOrder) {
    Say(Advice::kSameOrder, text::SameOrder(static_cast<std::int64_t>(epochs.begin()->first) - 1,
                                            static_cast<std::int64_t>(count)));
  }
}

void Advisor::JudgeParameters(const std::vector<double>& words, std::int64_t step) {
  const std::size_t ranks = kWords * Index(world_size_);
  if (words.size() != ranks + 2 * parameters_.size()) {
    return;
  }
  double active = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    active += WordOf(words, rank, kActive);
  }
  std::vector<text::PartlyUsed> partly;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const double used = words[ranks + 2 * i];
    if (used > 0 && used < active) {
      // With one rank that did not use it, the sum of their numbers is its own.
      partly.push_back({parameters_[i], static_cast<std::int64_t>(active - used),
                        static_cast<std::int64_t>(words[ranks + 2 * i + 1])});
    }
  }
  if (!partly.empty()) {
    Say(Advice::kUnusedParameter,
        text::UnusedParameters(partly, static_cast<std::int64_t>(active), step));
  }
}

void Advisor::JudgeWaiting(const std::vector<double>& words) {
  double sum = 0;
  int known = 0;
  int least_rank = -1;
  double least = 1;
  for (int rank = 0; rank < world_size_; ++rank) {
    const double word = WordOf(words, rank, kWaited);
    if (word == 0) {
      continue;
    }
    const double waited = std::clamp(word - 1, 0.0, 1.0);
    sum += waited;
    ++known;
    if (least_rank < 0 || waited < least) {
      least_rank = rank;
      least = waited;
    }
  }
  if (!JudgesTime() || world_size_ == 1 || known == 0) {
    return;
  }
  const double waited = sum / known;
  const double step_s = step_s_ / static_cast<double>(kWaitingSteps);
  if (1 - waited < kLeastEfficiency && (1 - waited) * step_s >= kLeastOwnStepSeconds) {
    Say(Advice::kWaiting,
        text::Waiting(waited, step_s, kWaitingSteps, world_size_, least_rank, least));
  }
}

void Advisor::JudgeMemory(const std::vector<double>& words) {
  double most = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    const double used = WordOf(words, rank, kMemory);
    if (used == 0) {
      return;  // it would have to fit there too
    }
    most = std::max(most, used);
  }
  const bool may_grow = !memory_ran_out_ && (limit_ == 0 || 2 * accumulated_micro_batch_ <= limit_);
  if (2 * most <= kMostMemory && most_micro_steps_ > 1 && may_grow) {
    Say(Advice::kAccumulation,
        text::Accumulation(most_micro_steps_, accumulated_micro_batch_, most));
  }
}

}  // namespace ddl::internal
