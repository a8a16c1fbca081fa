// Hashes of the first samples of an epoch.
#include "worker_sdk/src/sample_watch.h"

#include "worker_sdk/src/splitmix64.h"

namespace ddl::internal {
namespace {

// A double holds whole numbers below 2^53 exactly.
constexpr unsigned kShiftTo52Bits = 12;

std::uint64_t HashOf(std::int64_t sample) {
  return SplitMix64::Mix(static_cast<std::uint64_t>(sample) + SplitMix64::kGamma);
}

}  // namespace

bool SampleWatch::Begins(const SampleFacts& facts) const {
  return facts.epoch != current_.epoch || facts.step_in_epoch <= last_step_;
}

SampleWatch::Start SampleWatch::Next(const SampleFacts& facts) const {
  Start start = current_;
  if (Begins(facts)) {
    start = Start();
    start.epoch = facts.epoch;
    start.first_step = facts.step_in_epoch;
  }
  if (start.steps == kSteps) {
    return start;
  }
  std::uint64_t order = 0;
  for (const std::int64_t sample : facts.samples) {
    const std::uint64_t hash = HashOf(sample);
    start.set_hash += hash;
    order = SplitMix64::Mix(order + hash);
  }
  if (start.steps == 0) {
    start.order_hash = order;
    start.first_count = static_cast<std::int64_t>(facts.samples.size());
  }
  start.count += static_cast<std::int64_t>(facts.samples.size());
  ++start.steps;
  return start;
}

SampleWatch::View SampleWatch::Look(const SampleFacts& facts) const {
  View view;
  view.epoch = facts.epoch;
  if (facts.epoch < 0) {
    return view;
  }
  const bool begins = Begins(facts);
  const Start next = Next(facts);
  view.epochs = epochs_ + (begins ? 1 : 0);
  view.fresh = begins || current_.steps < kSteps;
  view.hash = static_cast<double>(next.set_hash >> kShiftTo52Bits);
  view.count = next.count;
  const Start& before = begins ? current_ : before_;
  view.order_unchanged = !facts.fixed_order && before.epoch >= 0 && before.first_step == 0 &&
                         next.first_step == 0 && next.first_count > 0 &&
                         next.first_count == before.first_count &&
                         next.order_hash == before.order_hash;
  return view;
}

void SampleWatch::Commit(const SampleFacts& facts) {
  if (facts.epoch < 0) {
    return;
  }
  const Start next = Next(facts);
  if (Begins(facts)) {
    before_ = current_;
    ++epochs_;
  }
  current_ = next;
  last_step_ = facts.step_in_epoch;
}

}  // namespace ddl::internal
