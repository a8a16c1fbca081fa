// Solves global = micro x accumulation x world, and the learning rate after it.
#include "agent/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/status_macros.h"
#include "agent/plan/divisors.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

constexpr std::string_view kGlobal = "--global-batch-size";
constexpr std::string_view kMicro = "--micro-batch-size";
constexpr std::string_view kMaxMicro = "--max-micro-batch-size";
constexpr std::string_view kAccumulation = "--grad-accum-steps";
constexpr std::string_view kBaseLr = "--base-lr";
constexpr std::string_view kBaseBatch = "--base-batch-size";
constexpr std::string_view kWarmup = "--warmup-steps";

// The largest divisor of `n` that is not above `limit`; both are at least 1.
std::int64_t LargestDivisorUpTo(std::int64_t n, std::int64_t limit) {
  if (n > kMaxShare) {
    return limit >= n ? n : 1;
  }
  return Divisors(n).AtMost(limit);
}

// The divisors of `n` next to `wanted`, as "8 or 16".
std::string NearestDivisors(std::int64_t n, std::int64_t wanted) {
  const std::int64_t below = LargestDivisorUpTo(n, std::min(wanted, n));
  if (wanted >= n) {
    return std::to_string(n);
  }
  // A divisor e is above `wanted` when its partner n / e is at most
  // n / (wanted + 1): the largest such partner gives the smallest e.
  const std::int64_t above = n / LargestDivisorUpTo(n, n / (wanted + 1));
  return std::to_string(below) + " or " + std::to_string(above);
}

// The multiples of `unit` next to `wanted`, as "96 or 128"; never 0.
std::string NearestMultiples(std::int64_t unit, std::int64_t wanted) {
  const std::int64_t below = wanted / unit * unit;
  if (below == 0) {
    return std::to_string(unit);
  }
  if (below == wanted || below > kMaxNumber - unit) {
    return std::to_string(below);
  }
  return std::to_string(below) + " or " + std::to_string(below + unit);
}

absl::Status CheckRange(std::string_view name, std::optional<std::int64_t> value,
                        std::int64_t least) {
  if (!value.has_value() || (*value >= least && *value <= kMaxNumber)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(Flag(name, *value) + " is out of range: " +
                                    std::to_string(least) + " to " + std::to_string(kMaxNumber));
}

absl::Status CheckRanges(const Request& request, std::int64_t world) {
  if (world < 1 || world > kMaxNumber) {
    return absl::InvalidArgumentError("a world of " + std::to_string(world) +
                                      " ranks is out of range: 1 to " + std::to_string(kMaxNumber));
  }
  DDL_RETURN_IF_ERROR(CheckRange(kGlobal, request.global_batch_size, 1));
  DDL_RETURN_IF_ERROR(CheckRange(kMicro, request.micro_batch_size, 1));
  DDL_RETURN_IF_ERROR(CheckRange(kMaxMicro, request.max_micro_batch_size, 1));
  DDL_RETURN_IF_ERROR(CheckRange(kAccumulation, request.grad_accum_steps, 1));
  DDL_RETURN_IF_ERROR(CheckRange(kBaseBatch, request.base_batch_size, 1));
  DDL_RETURN_IF_ERROR(CheckRange(kWarmup, request.warmup_steps, 0));
  if (request.base_lr.has_value() && !(std::isfinite(*request.base_lr) && *request.base_lr > 0)) {
    Request rate;
    rate.base_lr = request.base_lr;
    return absl::InvalidArgumentError(Describe(rate) + " is out of range: above 0 and finite");
  }
  return absl::OkStatus();
}

// The three numbers of the identity for one world.
struct Batch {
  std::int64_t global = 0;
  std::int64_t micro = 0;
  std::int64_t accumulation = 0;
};

absl::Status TooLarge(const std::string& product) {
  return absl::InvalidArgumentError("the global batch " + product + " is beyond " +
                                    std::to_string(kMaxNumber) + " samples");
}

// Global and micro and accumulation are all given.
absl::StatusOr<Batch> CheckAll(std::int64_t global, std::int64_t micro, std::int64_t accumulation,
                               std::int64_t world) {
  const std::string product =
      std::to_string(micro) + " x " + std::to_string(accumulation) + " x " + std::to_string(world);
  const std::optional<std::int64_t> actual = Product({micro, accumulation, world});
  if (actual == global) {
    return Batch{global, micro, accumulation};
  }
  std::string text = Flag(kGlobal, global) + ", " + Flag(kMicro, micro) + " and " +
                     Flag(kAccumulation, accumulation) + " do not multiply out on " + Ranks(world) +
                     ": " + product + " is " +
                     (actual.has_value() ? std::to_string(*actual) : "too large") + ", not " +
                     std::to_string(global) + "; leave one of them out";
  if (actual.has_value()) {
    text += ", or use " + Flag(kGlobal, *actual);
  }
  if (const auto unit = Product({micro, world}); unit.has_value() && global % *unit == 0) {
    text += ", or " + Flag(kAccumulation, global / *unit);
  }
  if (const auto unit = Product({accumulation, world}); unit.has_value() && global % *unit == 0) {
    text += ", or " + Flag(kMicro, global / *unit);
  }
  return absl::InvalidArgumentError(text);
}

// Global and one factor (micro or accumulation) are given: the other factor.
absl::StatusOr<std::int64_t> OtherFactor(std::int64_t global, std::string_view name,
                                         std::int64_t factor, std::int64_t world) {
  const std::optional<std::int64_t> unit = Product({factor, world});
  if (unit.has_value() && global % *unit == 0) {
    return global / *unit;
  }
  std::string text = Flag(kGlobal, global) + " is no multiple of " + Flag(name, factor) + " x " +
                     Ranks(world) + "; nearest:";
  if (unit.has_value()) {
    text += " " + std::string(kGlobal) + "=" + NearestMultiples(*unit, global);
  }
  if (global % world == 0) {
    text += (unit.has_value() ? ", or " : " ") + std::string(name) + "=" +
            NearestDivisors(global / world, factor);
  } else if (!unit.has_value()) {
    text += " " + std::string(kGlobal) + "=" + NearestMultiples(world, global);
  }
  return absl::InvalidArgumentError(text);
}

// Only global is given, perhaps with a cap: the largest micro that fits.
absl::StatusOr<Batch> SplitGlobal(std::int64_t global, std::optional<std::int64_t> cap,
                                  std::int64_t world) {
  if (global % world != 0) {
    return absl::InvalidArgumentError(Flag(kGlobal, global) + " cannot be shared evenly by " +
                                      Ranks(world) + "; nearest: " + std::string(kGlobal) + "=" +
                                      NearestMultiples(world, global));
  }
  const std::int64_t per_rank = global / world;
  const std::int64_t micro =
      cap.has_value() && *cap < per_rank ? LargestDivisorUpTo(per_rank, *cap) : per_rank;
  return Batch{global, micro, per_rank / micro};
}

absl::StatusOr<Batch> SolveBatch(const Request& request, std::int64_t world) {
  const auto& global = request.global_batch_size;
  const auto& micro = request.micro_batch_size;
  const auto& accumulation = request.grad_accum_steps;
  if (global.has_value() && micro.has_value() && accumulation.has_value()) {
    return CheckAll(*global, *micro, *accumulation, world);
  }
  if (global.has_value() && micro.has_value()) {
    DDL_ASSIGN_OR_RETURN(const std::int64_t other, OtherFactor(*global, kMicro, *micro, world));
    return Batch{*global, *micro, other};
  }
  if (global.has_value() && accumulation.has_value()) {
    DDL_ASSIGN_OR_RETURN(const std::int64_t other,
                         OtherFactor(*global, kAccumulation, *accumulation, world));
    return Batch{*global, other, *accumulation};
  }
  if (global.has_value()) {
    return SplitGlobal(*global, request.max_micro_batch_size, world);
  }
  if (micro.has_value()) {
    const std::int64_t steps = accumulation.value_or(1);
    const std::optional<std::int64_t> product = Product({*micro, steps, world});
    if (!product.has_value()) {
      return TooLarge(Flag(kMicro, *micro) + " x " + Flag(kAccumulation, steps) + " x " +
                      Ranks(world));
    }
    return Batch{*product, *micro, steps};
  }
  const std::string asked = Describe(request);
  return absl::InvalidArgumentError((asked.empty() ? "nothing was asked for" : asked + " alone") +
                                    std::string(": no batch follows from it; give ") +
                                    std::string(kGlobal) + " or " + std::string(kMicro));
}

absl::Status CheckCap(const Request& request, const Batch& batch, std::int64_t world) {
  const auto& cap = request.max_micro_batch_size;
  if (!cap.has_value() || batch.micro <= *cap) {
    return absl::OkStatus();
  }
  if (request.micro_batch_size.has_value()) {
    return absl::InvalidArgumentError(Flag(kMicro, batch.micro) + " is above " +
                                      Flag(kMaxMicro, *cap) + "; lower it to " +
                                      std::to_string(*cap) + " or raise the cap");
  }
  const std::int64_t per_rank = batch.global / world;
  return absl::InvalidArgumentError(
      Flag(kGlobal, batch.global) + " with " + Flag(kAccumulation, batch.accumulation) + " on " +
      Ranks(world) + " needs a micro-batch of " + std::to_string(batch.micro) + ", above " +
      Flag(kMaxMicro, *cap) +
      "; nearest: " + Flag(kAccumulation, per_rank / LargestDivisorUpTo(per_rank, *cap)));
}

// The rate for the actual global batch. Linear: Goyal et al. 2017, "Accurate,
// Large Minibatch SGD", section 2.1. Sqrt: Krizhevsky 2014, "One weird trick".
absl::StatusOr<std::optional<double>> LearningRate(const Request& request, std::int64_t global) {
  const LrScaling scaling = request.lr_scaling.value_or(LrScaling::kNone);
  if (scaling == LrScaling::kNone) {
    return request.base_lr;
  }
  if (!request.base_lr.has_value() || !request.base_batch_size.has_value()) {
    std::string missing;
    if (!request.base_lr.has_value()) {
      missing += kBaseLr;
    }
    if (!request.base_batch_size.has_value()) {
      missing += (missing.empty() ? "" : " and ") + std::string(kBaseBatch);
    }
    return absl::InvalidArgumentError(std::string("--lr-scaling=") + ToString(scaling) +
                                      " scales the rate known for another batch: give " + missing +
                                      " too");
  }
  const double ratio = static_cast<double>(global) / static_cast<double>(*request.base_batch_size);
  const double rate = *request.base_lr * (scaling == LrScaling::kLinear ? ratio : std::sqrt(ratio));
  if (!std::isfinite(rate) || rate <= 0) {
    return absl::InvalidArgumentError(
        Describe(request) + ": the scaled learning rate is out of a double's range; check " +
        std::string(kBaseLr) + " and " + std::string(kBaseBatch));
  }
  return rate;
}

}  // namespace

bool Request::empty() const {
  return *this == Request();
}

bool Plan::even() const {
  const auto product = Product({micro_batch_size, grad_accum_steps, world_size});
  return product == global_batch_size;
}

absl::StatusOr<Plan> Solve(const Request& request, std::int64_t world_size) {
  DDL_RETURN_IF_ERROR(CheckRanges(request, world_size));
  DDL_ASSIGN_OR_RETURN(const Batch batch, SolveBatch(request, world_size));
  DDL_RETURN_IF_ERROR(CheckCap(request, batch, world_size));
  Plan plan;
  plan.world_size = world_size;
  plan.global_batch_size = batch.global;
  plan.micro_batch_size = batch.micro;
  plan.grad_accum_steps = batch.accumulation;
  DDL_ASSIGN_OR_RETURN(plan.learning_rate, LearningRate(request, batch.global));
  plan.warmup_steps = request.warmup_steps.value_or(0);
  plan.warmup_samples = plan.warmup_steps * plan.global_batch_size;
  return plan;
}

}  // namespace ddl::plan
