// Flat gradient buckets and the sum-normalised reduction.
#include "ddl/data_parallel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/status_macros.h"
#include "worker_sdk/src/step_advice.h"
#include "worker_sdk/src/step_log.h"

namespace ddl {
namespace {

// FNV-1a over names, lengths and the buckets' size: equal on ranks that built
// the same model and will send it alike.
std::uint64_t LayoutHash(const std::vector<Parameter>& parameters, std::size_t bucket_bytes) {
  std::uint64_t hash = 14695981039346656037U;
  const auto add = [&hash](unsigned char byte) {
    hash ^= byte;
    hash *= 1099511628211U;
  };
  for (const Parameter& parameter : parameters) {
    std::for_each(parameter.name.begin(), parameter.name.end(), add);
    add(':');
    std::string length = std::to_string(parameter.value.size());
    length += ';';
    std::for_each(length.begin(), length.end(), add);
  }
  const std::string buckets = std::to_string(bucket_bytes);
  std::for_each(buckets.begin(), buckets.end(), add);
  return hash;
}

}  // namespace

absl::StatusOr<DataParallel> DataParallel::Create(Backend* backend,
                                                  std::vector<Parameter> parameters,
                                                  const DataParallelOptions& options) {
  DDL_CHECK(backend != nullptr);
  for (const Parameter& parameter : parameters) {
    if (parameter.value.size() != parameter.gradient.size()) {
      return absl::InvalidArgumentError(
          "parameter \"" + parameter.name + "\" has " + std::to_string(parameter.value.size()) +
          " elements, its gradient " + std::to_string(parameter.gradient.size()));
    }
  }
  DataParallel parallel(backend, std::move(parameters), options);
  DDL_RETURN_IF_ERROR(parallel.CheckSameLayout());
  DDL_RETURN_IF_ERROR(parallel.BroadcastParameters());
  parallel.step_log_ =
      internal::StepLog::FromEnvironment(backend->rank(), options.peak_memory_bytes);
  return parallel;
}

DataParallel::DataParallel(Backend* backend, std::vector<Parameter> parameters,
                           const DataParallelOptions& options)
    : backend_(backend),
      parameters_(std::move(parameters)),
      bucket_bytes_(options.bucket_bytes),
      before_retry_(options.before_retry) {
  const std::size_t most = bucket_bytes_ / sizeof(float);
  for (std::size_t i = parameters_.size(); i > 0; --i) {
    const std::size_t elements = parameters_[i - 1].value.size();
    if (buckets_.empty() || buckets_.back().elements + elements > most) {
      buckets_.emplace_back();
    }
    buckets_.back().parameters.push_back(i - 1);
    buckets_.back().elements += elements;
  }
  std::vector<std::string> names;
  internal::Gradients gradients;
  for (const Parameter& parameter : parameters_) {
    names.push_back(parameter.name);
    gradients.emplace_back(parameter.gradient);
  }
  // Resident memory of the host says nothing of a device's: no peak, no advice.
  advice_ = std::make_shared<internal::StepAdvice>(options.advice, backend_->rank(),
                                                   backend_->world_size(), std::move(names),
                                                   std::move(gradients), options.peak_memory_bytes);
}

absl::Status DataParallel::CheckSameLayout() {
  std::uint64_t hash = LayoutHash(parameters_, bucket_bytes_);
  const std::uint64_t mine = hash;
  DDL_RETURN_IF_ERROR(backend_->Broadcast(std::as_writable_bytes(std::span(&hash, 1)), 0));
  // Ranks whose layout is not rank 0's; all of them must learn it, or the rest
  // would wait for a rank that has left.
  std::array<double, 1> differing = {hash == mine ? 0.0 : 1.0};
  DDL_RETURN_IF_ERROR(backend_->AllReduceSum(std::span<double>(differing)));
  if (differing[0] > 0) {
    std::string text = std::to_string(static_cast<int>(differing[0]));
    text += " of " + std::to_string(backend_->world_size());
    text += " ranks have other parameters (names or lengths) than rank 0";
    if (hash != mine) {
      text += ", rank " + std::to_string(backend_->rank()) + " among them";
    }
    return absl::FailedPreconditionError(text + "; every rank must build the same model");
  }
  return absl::OkStatus();
}

absl::Status DataParallel::BroadcastParameters(int root) {
  for (const Parameter& parameter : parameters_) {
    DDL_RETURN_IF_ERROR(backend_->Broadcast(std::as_writable_bytes(parameter.value), root));
  }
  return absl::OkStatus();
}

absl::Status DataParallel::AddMicroBatch(double loss_sum, double weight) {
  if (!std::isfinite(weight) || weight < 0) {
    return absl::InvalidArgumentError("a micro-batch of weight " + std::to_string(weight) +
                                      "; the weight is its number of samples or tokens");
  }
  // A loss without weight has no say, whatever it came out as (0/0).
  loss_sum_ += weight > 0 ? loss_sum : 0;
  weight_ += weight;
  advice_->AddMicroBatch(weight);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> DataParallel::FinishStep() {
  // Loss, weight, and what advice wants to know: always as many, so that a sum is
  // added in the same order with advice and without.
  using internal::Advisor;
  std::array<double, 2 + Advisor::kTotals> totals = {loss_sum_, weight_};
  const Advisor::TotalsArray mine = advice_->Totals(weight_, next_step_);
  std::copy(mine.begin(), mine.end(), totals.begin() + 2);
  loss_sum_ = 0;
  weight_ = 0;
  DDL_RETURN_IF_ERROR(
      advice_->Timed([&] { return backend_->AllReduceSum(std::span<double>(totals)); }));
  const double loss_sum = totals[0];
  const double weight = totals[1];
  Advisor::TotalsArray reduced{};
  std::copy(totals.begin() + 2, totals.end(), reduced.begin());
  std::vector<double> words;
  if (advice_->ExchangeDue(reduced)) {
    words = advice_->Words();
    DDL_RETURN_IF_ERROR(backend_->AllReduceSum(std::span<double>(words)));
  }
  for (const Bucket& bucket : buckets_) {
    DDL_RETURN_IF_ERROR(ReduceBucket(bucket, weight));
  }
  advice_->Finish(reduced, weight, words);
  const StepResult result{weight > 0 ? loss_sum / weight : 0.0, weight};
  if (step_log_ != nullptr) {
    step_log_->Add(result.weight, result.mean_loss);
  }
  ++next_step_;
  return result;
}

absl::Status DataParallel::ReduceBucket(const Bucket& bucket, double weight) {
  flat_.resize(bucket.elements);
  auto position = flat_.begin();
  for (const std::size_t index : bucket.parameters) {
    const std::span<float> gradient = parameters_[index].gradient;
    position = std::copy(gradient.begin(), gradient.end(), position);
  }
  DDL_RETURN_IF_ERROR(
      advice_->Timed([&] { return backend_->AllReduceSum(std::span<float>(flat_)); }));
  std::size_t offset = 0;
  for (const std::size_t index : bucket.parameters) {
    for (float& element : parameters_[index].gradient) {
      element = weight > 0 ? static_cast<float>(flat_[offset] / weight) : 0.0F;
      ++offset;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> DataParallel::AnyHasMore(bool have) {
  std::array<double, 1> ranks = {have ? 1.0 : 0.0};
  DDL_RETURN_IF_ERROR(
      advice_->Timed([&] { return backend_->AllReduceSum(std::span<double>(ranks)); }));
  const int world = backend_->world_size();
  if (ranks[0] > 0 && ranks[0] < world && !ranks_are_out_) {
    // The first to run out; all ranks come here in the same step.
    ranks_are_out_ = true;
    std::vector<double> out(static_cast<std::size_t>(world));
    out[static_cast<std::size_t>(backend_->rank())] = have ? 0 : 1;
    DDL_RETURN_IF_ERROR(backend_->AllReduceSum(std::span<double>(out)));
    std::vector<int> numbers;
    for (int rank = 0; rank < world; ++rank) {
      if (out[static_cast<std::size_t>(rank)] > 0) {
        numbers.push_back(rank);
      }
    }
    advice_->RanksAreOut(numbers);
  }
  return ranks[0] > 0;
}

void DataParallel::ZeroGradients() {
  for (const Parameter& parameter : parameters_) {
    std::fill(parameter.gradient.begin(), parameter.gradient.end(), 0.0F);
  }
}

}  // namespace ddl
