// Solves global = micro x accumulation x world, under each policy.
#include "agent/plan/batch.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/status_macros.h"
#include "agent/plan/divisors.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

// Within the limits of a rank and of all of them.
std::optional<Batch> Bounded(std::int64_t micro, std::int64_t accumulation, std::int64_t world) {
  const std::optional<std::int64_t> share = Product({micro, accumulation});
  if (!share.has_value() || *share > kMaxShare) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> global = Product({*share, world});
  return global.has_value() ? std::optional(Batch{*global, micro, accumulation}) : std::nullopt;
}

// The largest micro-batch up to `cap` that splits what each rank gets. REQUIRES: the
// world shares the global batch evenly, and no share is above kMaxShare.
Batch SplitEvenly(std::int64_t global, std::int64_t world, std::int64_t cap) {
  const std::int64_t share = global / world;
  const std::int64_t micro = share <= cap ? share : Divisors(share).AtMost(cap);
  return Batch{global, micro, share / micro};
}

// ---- kFail: the very numbers or none -------------------------------------------

std::optional<Batch> SolveFail(const Request& request, std::int64_t world) {
  const std::int64_t global = *request.global_batch_size;
  const std::int64_t cap = CapOf(request);
  const std::int64_t micro = request.micro_batch_size.value_or(1);
  const std::int64_t accumulation = request.grad_accum_steps.value_or(1);
  const std::optional<std::int64_t> unit = Product({micro, accumulation, world});
  if (!unit.has_value() || global % *unit != 0 || global / world > kMaxShare) {
    return std::nullopt;
  }
  const std::int64_t rest = global / *unit;
  if (request.micro_batch_size.has_value() && request.grad_accum_steps.has_value()) {
    return rest == 1 ? std::optional(Batch{global, micro, accumulation}) : std::nullopt;
  }
  if (request.micro_batch_size.has_value()) {
    return Batch{global, micro, rest};
  }
  const Batch batch = request.grad_accum_steps.has_value() ? Batch{global, rest, accumulation}
                                                           : SplitEvenly(global, world, cap);
  const bool fits = batch.micro <= cap && batch.micro >= FloorOf(request, global / world);
  return fits ? std::optional(batch) : std::nullopt;
}

// ---- kNearest: even shares of a global batch close to the one asked for ----------

class NearestSearch {
 public:
  NearestSearch(std::int64_t global, std::int64_t world, std::int64_t cap)
      : global_(global), world_(world), cap_(cap) {}

  // The two micro-batches next to the exact one, of those not below `floor`. Of equals
  // the first wins that was tried: so try few micro-steps first.
  void Try(std::int64_t accumulation, std::int64_t floor) {
    const std::optional<std::int64_t> unit = Product({accumulation, world_});
    if (!unit.has_value()) {
      return;
    }
    const std::int64_t below = std::min(global_ / *unit, cap_);
    for (std::int64_t micro = std::max(below, floor); micro <= std::min(below + 1, cap_); ++micro) {
      Take(Bounded(micro, accumulation, world_));
    }
  }
  [[nodiscard]] const std::optional<Batch>& best() const { return best_; }

 private:
  void Take(const std::optional<Batch>& batch) {
    if (batch.has_value() && (!best_.has_value() || std::abs(batch->global - global_) <
                                                        std::abs(best_->global - global_))) {
      best_ = batch;
    }
  }

  const std::int64_t global_;
  const std::int64_t world_;
  const std::int64_t cap_;
  std::optional<Batch> best_;
};

// REQUIRES: floor <= cap.
std::optional<Batch> NearestFree(std::int64_t global, std::int64_t world, std::int64_t cap,
                                 std::int64_t floor) {
  const std::int64_t share = CeilDivide(global, world);
  if (share > kMaxShare) {
    return std::nullopt;
  }
  const std::int64_t fewest = CeilDivide(share, cap);
  if (global % world == 0) {
    const Batch batch = SplitEvenly(global, world, cap);
    if (batch.accumulation <= 2 * fewest && batch.micro >= std::min(floor, share)) {
      return batch;
    }
  }
  // From the fewest micro-steps whose micro-batch fits, and from one fewer, for which
  // the cap itself may come nearest. Twice as many are enough to come near, and a
  // micro-batch far below what fits would starve the device; the bound keeps it quick.
  constexpr std::int64_t kMostTries = 64;
  const std::int64_t last = std::min(2 * fewest, fewest + kMostTries - 1);
  NearestSearch search(global, world, cap);
  for (std::int64_t accumulation = std::max<std::int64_t>(1, fewest - 1); accumulation <= last;
       ++accumulation) {
    search.Try(accumulation, accumulation == 1 ? 1 : floor);
  }
  return search.best();
}

// A cap below what the micro-steps need makes another batch, not a near one.
std::optional<Batch> NearestFixed(std::int64_t global, std::int64_t accumulation,
                                  std::int64_t world, std::int64_t cap) {
  const std::optional<std::int64_t> unit = Product({accumulation, world});
  if (!unit.has_value() || global / *unit > cap) {
    return std::nullopt;
  }
  NearestSearch search(global, world, cap);
  search.Try(accumulation, 1);
  return search.best();
}

// ---- kExact: shares that differ by one sample ------------------------------------

std::optional<Batch> SolveExact(std::int64_t global, std::optional<std::int64_t> accumulation,
                                std::int64_t world, std::int64_t cap) {
  // The largest share, which the first rank has.
  const std::int64_t share = CeilDivide(global, world);
  if (global < world || share > kMaxShare) {
    return std::nullopt;
  }
  const std::int64_t steps = accumulation.value_or(CeilDivide(share, cap));
  const std::int64_t micro = CeilDivide(share, steps);
  return steps <= share && micro <= cap ? std::optional(Batch{global, micro, steps}) : std::nullopt;
}

// ---- either ------------------------------------------------------------------------

// kNearest or kExact: where the numbers cannot be, the global batch is the one that
// counts, and a micro-batch that was given is as much as fits.
std::optional<Batch> SolveNear(const Request& request, std::int64_t world) {
  const std::int64_t global = *request.global_batch_size;
  std::optional<std::int64_t> accumulation = request.grad_accum_steps;
  if (request.micro_batch_size.has_value() && accumulation.has_value()) {
    // They must be right for some world. For another one accumulation moves.
    const std::optional<std::int64_t> share = Product({*request.micro_batch_size, *accumulation});
    if (!share.has_value() || *share > kMaxShare || global % *share != 0) {
      return std::nullopt;
    }
    if (global / *share == world) {
      return Batch{global, *request.micro_batch_size, *accumulation};
    }
    accumulation.reset();
  }
  const std::int64_t cap = request.micro_batch_size.value_or(CapOf(request));
  if (PolicyOf(request) == BatchPolicy::kExact) {
    return SolveExact(global, accumulation, world, cap);
  }
  return accumulation.has_value() ? NearestFixed(global, *accumulation, world, cap)
                                  : NearestBatch(request, global, cap, world);
}

absl::Status CheckRange(std::string_view name, std::optional<std::int64_t> value,
                        std::int64_t most) {
  return !value.has_value() || (*value >= 1 && *value <= most)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(Flag(name, *value) + " is out of range: 1 to " +
                                          std::to_string(most));
}

}  // namespace

absl::Status CheckBatch(const Request& request) {
  DDL_RETURN_IF_ERROR(CheckRange(kGlobal, request.global_batch_size, kMaxNumber));
  DDL_RETURN_IF_ERROR(CheckRange(kMicro, request.micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(CheckRange(kMaxMicro, request.max_micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(CheckRange(kMinMicro, request.min_micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(
      CheckRange("the learned micro-batch", request.learned_max_micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(CheckRange(kAccumulation, request.grad_accum_steps, kMaxShare));
  return CheckRange(kBaseBatch, request.base_batch_size, kMaxNumber);
}

bool CapsAgree(const Request& request) {
  const std::int64_t floor = request.min_micro_batch_size.value_or(1);
  const std::int64_t micro = request.micro_batch_size.value_or(floor);
  return floor <= micro && micro <= CapOf(request);
}

Batch UnderLesson(const Request& request, const Batch& batch, std::int64_t world) {
  const std::int64_t most = request.learned_max_micro_batch_size.value_or(batch.micro);
  if (batch.micro <= most) {
    return batch;
  }
  // What a rank gets is as it was: so there is a split of either kind.
  return PolicyOf(request) == BatchPolicy::kExact || request.uneven_micro_steps.value_or(false)
             ? SolveExact(batch.global, std::nullopt, world, most).value_or(batch)
             : SplitEvenly(batch.global, world, most);
}

std::optional<Batch> NearestBatch(const Request& request, std::int64_t global, std::int64_t cap,
                                  std::int64_t world) {
  return NearestFree(global, world, cap, std::min(request.min_micro_batch_size.value_or(1), cap));
}

std::optional<Batch> SolveBatch(const Request& request, std::int64_t world) {
  if (!CapsAgree(request)) {
    return std::nullopt;
  }
  if (!request.global_batch_size.has_value()) {
    return request.micro_batch_size.has_value()
               ? Bounded(*request.micro_batch_size, request.grad_accum_steps.value_or(1), world)
               : std::nullopt;
  }
  return PolicyOf(request) == BatchPolicy::kFail ? SolveFail(request, world)
                                                 : SolveNear(request, world);
}

}  // namespace ddl::plan
