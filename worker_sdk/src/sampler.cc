// The permutation of an epoch and each rank's share of every step.
#include "ddl/sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/status_macros.h"
#include "worker_sdk/src/micro_batches.h"
#include "worker_sdk/src/splitmix64.h"

namespace ddl {

using internal::SplitMix64;

std::vector<std::int64_t> Permutation(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  DDL_CHECK(count >= 0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The seed is mixed first: otherwise (seed, epoch) and (seed + 1, epoch - 1)
  // would begin alike.
  SplitMix64 random(SplitMix64::Mix(seed) + static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  return order;
}

IndexRange ShareOf(std::int64_t count, int rank, int world_size) {
  DDL_CHECK(count >= 0 && rank >= 0 && rank < world_size);
  const std::int64_t whole = count / world_size;
  const std::int64_t rest = count % world_size;  // the first `rest` ranks have one more
  const std::int64_t begin = whole * rank + std::min<std::int64_t>(rank, rest);
  return {begin, begin + whole + (rank < rest ? 1 : 0)};
}

absl::StatusOr<DistributedSampler> DistributedSampler::Create(std::int64_t num_samples,
                                                              const Plan& plan, int rank,
                                                              std::uint64_t seed,
                                                              const SamplerOptions& options) {
  if (num_samples < 1) {
    return absl::InvalidArgumentError("the data set has " + std::to_string(num_samples) +
                                      " samples; there is nothing to train on");
  }
  if (plan.global_batch_size < 1 || plan.micro_batch_size < 1 || plan.world_size < 1) {
    return absl::InvalidArgumentError("the plan has no batch sizes: " + plan.ToString());
  }
  if (rank < 0 || rank >= plan.world_size) {
    return absl::InvalidArgumentError("rank " + std::to_string(rank) + " is not in a world of " +
                                      std::to_string(plan.world_size));
  }
  if (options.tail == Tail::kDrop && num_samples < plan.global_batch_size) {
    return absl::InvalidArgumentError(
        std::to_string(num_samples) + " samples are fewer than one step of " +
        std::to_string(plan.global_batch_size) +
        ", and the tail is dropped: there would be no step; use a smaller global batch, more data, "
        "or another tail");
  }
  if (num_samples < plan.world_size && options.tail == Tail::kUneven && rank == 0) {
    std::fprintf(stderr,
                 "ddl: warning: %lld samples for %lld ranks: some ranks have nothing to do in any "
                 "step; use more data or fewer workers\n",
                 static_cast<long long>(num_samples), static_cast<long long>(plan.world_size));
  }
  DistributedSampler sampler(num_samples, plan, rank, seed, options);
  DDL_RETURN_IF_ERROR(sampler.StartEpoch(0));
  return sampler;
}

DistributedSampler::DistributedSampler(std::int64_t num_samples, const Plan& plan, int rank,
                                       std::uint64_t seed, const SamplerOptions& options)
    : num_samples_(num_samples),
      global_batch_size_(plan.global_batch_size),
      micro_batch_size_(plan.micro_batch_size),
      world_size_(static_cast<int>(plan.world_size)),
      rank_(rank),
      seed_(seed),
      options_(options) {}

absl::Status DistributedSampler::StartEpoch(std::int64_t epoch, std::int64_t consumed) {
  if (epoch < 0 || consumed < 0 || consumed > num_samples_) {
    return absl::InvalidArgumentError(
        "epoch " + std::to_string(epoch) + " from sample " + std::to_string(consumed) +
        " is out of range: a data set of " + std::to_string(num_samples_) +
        " samples; was the state written for other data?");
  }
  epoch_ = epoch;
  consumed_ = consumed;
  ended_ = false;
  if (options_.shuffle) {
    order_ = Permutation(num_samples_, seed_, epoch);
  } else {
    order_.resize(static_cast<std::size_t>(num_samples_));
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
  }
  if (options_.tail == Tail::kPad) {
    for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(world_size_); ++i) {
      order_.push_back(order_[i]);
    }
  }
  return absl::OkStatus();
}

std::int64_t DistributedSampler::TailOf(std::int64_t left) const {
  switch (options_.tail) {
    case Tail::kUneven:
      return left;
    case Tail::kPad:
      return (left + world_size_ - 1) / world_size_ * world_size_;
    case Tail::kDrop:
      return 0;
  }
  return left;
}

std::optional<StepShare> DistributedSampler::Next() {
  if (ended_ && !StartEpoch(epoch_ + 1).ok()) {
    return std::nullopt;
  }
  const std::int64_t left = num_samples_ - consumed_;
  StepShare share;
  share.global_samples = left >= global_batch_size_ ? global_batch_size_ : TailOf(left);
  if (share.global_samples == 0) {
    ended_ = true;
    return std::nullopt;
  }
  share.step_in_epoch = (consumed_ + global_batch_size_ - 1) / global_batch_size_;
  share.epoch = epoch_;
  share.consumed_before = consumed_;
  share.epoch_samples = num_samples_;
  share.global_batch = global_batch_size_;
  share.tail_samples = TailOf(num_samples_ % global_batch_size_);
  share.fixed_order = !options_.shuffle;
  const IndexRange mine = ShareOf(share.global_samples, rank_, world_size_);
  share.samples = std::span(order_).subspan(static_cast<std::size_t>(consumed_ + mine.begin),
                                            static_cast<std::size_t>(mine.size()));
  share.micro_batches = internal::SplitShare(share.samples, micro_batch_size_);
  consumed_ += std::min(share.global_samples, left);
  return share;
}

std::int64_t DistributedSampler::steps_per_epoch() const {
  return num_samples_ / global_batch_size_ +
         (TailOf(num_samples_ % global_batch_size_) > 0 ? 1 : 0);
}

}  // namespace ddl
