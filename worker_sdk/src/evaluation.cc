// Shares of a test set, and their sums.
#include "ddl/evaluation.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/status_macros.h"

namespace ddl {

absl::StatusOr<EvaluationSampler> EvaluationSampler::Create(std::int64_t num_samples, int rank,
                                                            int world_size,
                                                            std::int64_t batch_size) {
  if (num_samples < 1) {
    return absl::InvalidArgumentError("the evaluation set has " + std::to_string(num_samples) +
                                      " samples; there is nothing to evaluate");
  }
  if (rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError("rank " + std::to_string(rank) + " is not in a world of " +
                                      std::to_string(world_size));
  }
  if (batch_size < 1) {
    return absl::InvalidArgumentError("an evaluation batch of " + std::to_string(batch_size) +
                                      " samples; it must be at least 1");
  }
  return EvaluationSampler(ShareOf(num_samples, rank, world_size), batch_size);
}

std::optional<IndexRange> EvaluationSampler::Next() {
  if (next_ == share_.end) {
    return std::nullopt;
  }
  const IndexRange batch{next_, next_ + std::min(batch_size_, share_.end - next_)};
  next_ = batch.end;
  return batch;
}

EvaluationTotals::EvaluationTotals(std::size_t values) : sums_(values) {
  DDL_CHECK(values >= 1);
}

void EvaluationTotals::Add(double value) {
  Add(std::span(&value, 1), 1);
}

void EvaluationTotals::Add(std::span<const double> sums, std::int64_t count) {
  DDL_CHECK(sums.size() == sums_.size() && count >= 0);
  std::transform(sums_.begin(), sums_.end(), sums.begin(), sums_.begin(), std::plus<>());
  count_ += count;
}

absl::StatusOr<EvaluationResult> EvaluationTotals::Reduce(Backend& backend) const {
  std::vector<double> totals = sums_;
  totals.push_back(static_cast<double>(count_));
  DDL_RETURN_IF_ERROR(backend.AllReduceSum(std::span(totals)));
  EvaluationResult result;
  result.count = static_cast<std::int64_t>(totals.back());
  totals.pop_back();
  if (result.count == 0) {
    return absl::FailedPreconditionError(
        "the evaluation saw no sample on any of " + std::to_string(backend.world_size()) +
        (backend.world_size() == 1 ? " rank" : " ranks") +
        ": a mean of nothing is not a number; is the test set empty, or was Add never called?");
  }
  for (double& total : totals) {
    total /= static_cast<double>(result.count);
  }
  result.means = std::move(totals);
  return result;
}

}  // namespace ddl
