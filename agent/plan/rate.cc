// Linear: Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1. Square
// root: Krizhevsky 2014, "One weird trick". Adam: Malladi et al. 2022, "On the SDEs
// and Scaling Rules for Adaptive Gradient Algorithms", definition 5.2.
#include "agent/plan/rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/status_macros.h"
#include "agent/plan/batch.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

// PyTorch's and the paper's (Kingma and Ba 2015).
constexpr Adam kAdamDefaults = {0.9, 0.999, 1e-8};

bool IsScaled(const Request& request) {
  return request.lr_scaling.value_or(LrScaling::kNone) != LrScaling::kNone;
}

absl::Status CheckAbove0(std::string_view name, std::optional<double> value) {
  return !value.has_value() || (std::isfinite(*value) && *value > 0)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(Flag(name, *value) +
                                          " is out of range: above 0 and finite");
}

absl::Status CheckBeta(std::string_view name, std::optional<double> value) {
  return !value.has_value() || (*value >= 0 && *value < 1)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(Flag(name, *value) +
                                          " is out of range: from 0 to below 1");
}

absl::Status CheckScaling(const Request& request) {
  if (request.scale_adam.value_or(false) && request.lr_scaling != LrScaling::kSqrt) {
    return absl::InvalidArgumentError(
        std::string(kScaleAdam) + " with " + std::string(kScaling) + "=" +
        ToString(request.lr_scaling.value_or(LrScaling::kNone)) +
        ": Adam's betas and eps follow the batch by the rule of which the square root for the rate "
        "is a part, and not without it; nearest: " +
        std::string(kScaling) + "=sqrt");
  }
  if (!IsScaled(request) || (request.base_lr.has_value() && request.base_batch_size.has_value())) {
    return absl::OkStatus();
  }
  Listing missing;
  if (!request.base_lr.has_value()) {
    missing.Add(std::string(kBaseLr));
  }
  if (!request.base_batch_size.has_value()) {
    missing.Add(std::string(kBaseBatch));
  }
  return absl::InvalidArgumentError(std::string(kScaling) + "=" + ToString(*request.lr_scaling) +
                                    " scales the rate known for another batch: give " +
                                    missing.Text("and") + " too");
}

double Ratio(const Request& request, std::int64_t global) {
  return static_cast<double>(global) / static_cast<double>(*request.base_batch_size);
}

absl::Status SolveLearningRate(const Request& request, Plan& plan) {
  plan.learning_rate = request.base_lr;
  if (!IsScaled(request)) {
    return absl::OkStatus();
  }
  const double ratio = Ratio(request, plan.global_batch_size);
  const double rate =
      *request.base_lr * (*request.lr_scaling == LrScaling::kLinear ? ratio : std::sqrt(ratio));
  if (!std::isfinite(rate) || rate <= 0) {
    return absl::InvalidArgumentError(
        Flag(kBaseLr, *request.base_lr) + " at " + Flag(kBaseBatch, *request.base_batch_size) +
        ": the scaled learning rate is out of a double's range; nearest: " + std::string(kScaling) +
        "=none" +
        (request.scale_adam.value_or(false) ? " without " + std::string(kScaleAdam) : ""));
  }
  plan.learning_rate = rate;
  return absl::OkStatus();
}

Adam ScaledAdam(const Adam& base, double ratio) {
  return {1 - ratio * (1 - base.beta1), 1 - ratio * (1 - base.beta2), base.eps / std::sqrt(ratio)};
}

// An average that forgets all of its past, or more, has no meaning, and one that
// forgets nothing never starts. What rounding leaves of 0 is 0.
constexpr double kLeastBeta = 1e-12;

bool IsValid(const Adam& adam) {
  const auto is_beta = [](double beta) { return beta > kLeastBeta && beta < 1; };
  return is_beta(adam.beta1) && is_beta(adam.beta2) && std::isfinite(adam.eps) && adam.eps > 0;
}

// The largest global batch at which `base` can be scaled; 0: none can.
std::int64_t LargestForAdam(const Request& request, const Adam& base) {
  const double forgets = 1 - std::min(base.beta1, base.beta2);
  const double limit = static_cast<double>(*request.base_batch_size) / forgets;
  auto global = static_cast<std::int64_t>(std::min(limit, static_cast<double>(kMaxNumber)));
  while (global > 0 && !IsValid(ScaledAdam(base, Ratio(request, global)))) {
    // A few for rounding; what else is wrong stays wrong.
    constexpr double kFew = 4;
    if (limit - static_cast<double>(global) > kFew * (1 + limit * kLeastBeta)) {
      return 0;
    }
    --global;
  }
  return global;
}

Adam BaseAdam(const Request& request) {
  return {request.adam_beta1.value_or(kAdamDefaults.beta1),
          request.adam_beta2.value_or(kAdamDefaults.beta2),
          request.adam_eps.value_or(kAdamDefaults.eps)};
}

// The largest batch up to `most` that the request can have by one other number.
std::string AlternativeUpTo(const Request& request, const Plan& plan, std::int64_t most) {
  const std::int64_t world = plan.world_size;
  Request other = request;
  if (!request.global_batch_size.has_value()) {
    other.micro_batch_size = most / world / request.grad_accum_steps.value_or(1);
    return *other.micro_batch_size > 0 && SolveBatch(other, world).has_value()
               ? Flag(kMicro, *other.micro_batch_size)
               : "";
  }
  const bool fails = PolicyOf(request) == BatchPolicy::kFail;
  const std::optional<std::int64_t> unit =
      Product({fails ? request.micro_batch_size.value_or(1) : 1,
               request.grad_accum_steps.value_or(1), world});
  if (!unit.has_value()) {
    return "";
  }
  other.global_batch_size = most / *unit * *unit;
  if (*other.global_batch_size < 1) {
    return "";
  }
  const std::optional<Batch> batch = SolveBatch(other, world);
  return batch.has_value() && batch->global <= most ? Flag(kGlobal, *other.global_batch_size) : "";
}

absl::Status SolveAdam(const Request& request, Plan& plan) {
  if (!request.adam_beta1.has_value() && !request.adam_beta2.has_value() &&
      !request.adam_eps.has_value() && !request.scale_adam.has_value()) {
    return absl::OkStatus();
  }
  const Adam base = BaseAdam(request);
  plan.adam = base;
  if (!request.scale_adam.value_or(false)) {
    return absl::OkStatus();
  }
  const double ratio = Ratio(request, plan.global_batch_size);
  plan.adam = ScaledAdam(base, ratio);
  if (IsValid(*plan.adam)) {
    return absl::OkStatus();
  }
  const std::int64_t most = LargestForAdam(request, base);
  const std::string alternative = most > 0 ? AlternativeUpTo(request, plan, most) : "";
  return absl::InvalidArgumentError(
      "Adam's numbers (" + Flag(kBeta1, base.beta1) + ", " + Flag(kBeta2, base.beta2) + ", " +
      Flag(kEps, base.eps) + " at " + Flag(kBaseBatch, *request.base_batch_size) +
      ") cannot be scaled to a global batch of " + std::to_string(plan.global_batch_size) +
      ": beta' = 1 - " + Rounded(ratio) + " x (1 - beta) must be between 0 and 1" +
      (most > 0 ? ", which holds up to a global batch of " + std::to_string(most) : "") +
      "; nearest: " + alternative + (alternative.empty() ? "" : ", or ") + "without " +
      std::string(kScaleAdam));
}

}  // namespace

absl::Status CheckRate(const Request& request) {
  DDL_RETURN_IF_ERROR(CheckAbove0(kBaseLr, request.base_lr));
  DDL_RETURN_IF_ERROR(CheckBeta(kBeta1, request.adam_beta1));
  DDL_RETURN_IF_ERROR(CheckBeta(kBeta2, request.adam_beta2));
  DDL_RETURN_IF_ERROR(CheckAbove0(kEps, request.adam_eps));
  return CheckScaling(request);
}

Batch WithinAdam(const Request& request, const Batch& batch, std::int64_t world) {
  if (!request.scale_adam.value_or(false) || PolicyOf(request) != BatchPolicy::kNearest ||
      request.global_batch_size.value_or(batch.global) >= batch.global) {
    return batch;
  }
  const std::int64_t most = LargestForAdam(request, BaseAdam(request));
  const std::optional<std::int64_t> unit = Product({request.grad_accum_steps.value_or(1), world});
  if (*request.global_batch_size > most || batch.global <= most || !unit.has_value() ||
      most < *unit) {
    return batch;
  }
  Request other = request;
  other.global_batch_size = most / *unit * *unit;
  const std::optional<Batch> below = SolveBatch(other, world);
  return below.has_value() && below->global <= most ? *below : batch;
}

absl::Status SolveRate(const Request& request, Plan& plan) {
  DDL_RETURN_IF_ERROR(SolveLearningRate(request, plan));
  return SolveAdam(request, plan);
}

}  // namespace ddl::plan
