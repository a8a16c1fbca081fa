// The words for a batch that cannot be, with the nearest numbers that can: each was
// solved before it is named.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/plan/batch.h"
#include "agent/plan/divisors.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"

namespace ddl::plan {
namespace {

using Field = std::optional<std::int64_t> Request::*;

// What would do in place of the request's numbers.
class Alternatives {
 public:
  Alternatives(const Request& request, std::int64_t world) : request_(request), world_(world) {}

  // Another value of one number, named only if it does.
  void Offer(Field field, std::string_view name, std::int64_t value) {
    Request other = request_;
    other.*field = value;
    if (value < 1 || value > kMaxNumber || !SolveBatch(other, world_).has_value()) {
      return;
    }
    if (name != name_) {
      text_ += (text_.empty() ? "" : ", or ") + Flag(name, value);
      name_ = name;
      last_ = value;
    } else if (value != last_) {
      text_ += " or " + std::to_string(value);
      last_ = value;
    }
  }
  void OfferPolicies() {
    for (const BatchPolicy policy : {BatchPolicy::kNearest, BatchPolicy::kExact}) {
      Request other = request_;
      other.batch_policy = policy;
      if (SolveBatch(other, world_).has_value()) {
        text_ +=
            name_ == kPolicy ? " or " : (text_.empty() ? "" : ", or ") + std::string(kPolicy) + "=";
        text_ += ToString(policy);
        name_ = kPolicy;
      }
    }
  }
  // The last resort does always.
  [[nodiscard]] std::string Text() const {
    if (!text_.empty()) {
      return "; nearest: " + text_;
    }
    const std::int64_t share =
        std::clamp<std::int64_t>(request_.global_batch_size.value_or(1) / world_, 1, kMaxShare);
    const std::optional<Batch> near =
        NearestBatch(request_, share * world_, CapOf(request_), world_);
    return "; nearest: " + Flag(kGlobal, near.has_value() ? near->global : share * world_) +
           " without " + std::string(kMicro) + " and " + std::string(kAccumulation);
  }

 private:
  const Request& request_;
  const std::int64_t world_;
  std::string text_;
  std::string_view name_;  // the last that was offered
  std::int64_t last_ = 0;
};

// ---- caps that contradict each other -------------------------------------------------

std::optional<std::string> WhyCapsDisagree(const Request& request) {
  const std::optional<std::int64_t>& micro = request.micro_batch_size;
  const std::optional<std::int64_t>& cap = request.max_micro_batch_size;
  const std::optional<std::int64_t>& floor = request.min_micro_batch_size;
  const auto words = [](std::string_view name, std::int64_t value, const char* is,
                        std::string_view other_name, std::int64_t other) {
    return Flag(name, value) + " is " + is + " " + Flag(other_name, other) +
           "; nearest: " + Flag(name, other) + ", or " + Flag(other_name, value);
  };
  if (floor.has_value() && cap.has_value() && *floor > *cap) {
    return words(kMinMicro, *floor, "above", kMaxMicro, *cap);
  }
  if (micro.has_value() && cap.has_value() && *micro > *cap) {
    return words(kMicro, *micro, "above", kMaxMicro, *cap);
  }
  if (micro.has_value() && floor.has_value() && *micro < *floor) {
    return words(kMicro, *micro, "below", kMinMicro, *floor);
  }
  return std::nullopt;
}

// ---- a split below the floor ----------------------------------------------------------

// kFail: the micro-batch that the request comes to without its floor, and a share of
// more samples than that. Nothing: the floor is not the reason.
std::optional<std::string> WhyBelowFloor(const Request& request, std::int64_t world) {
  Request other = request;
  other.min_micro_batch_size.reset();
  const std::optional<Batch> batch = SolveBatch(other, world);
  if (!request.min_micro_batch_size.has_value() || !batch.has_value()) {
    return std::nullopt;
  }
  const std::int64_t floor = *request.min_micro_batch_size;
  const std::int64_t share = batch->global / world;
  Alternatives alternatives(request, world);
  if (request.grad_accum_steps.has_value()) {
    alternatives.Offer(&Request::global_batch_size, kGlobal,
                       Product({floor, batch->accumulation, world}).value_or(0));
    alternatives.Offer(&Request::grad_accum_steps, kAccumulation,
                       Divisors(share).AtMost(std::max<std::int64_t>(share / floor, 1)));
  } else if (const auto near = NearestBatch(request, batch->global, CapOf(request), world);
             near.has_value()) {
    alternatives.Offer(&Request::global_batch_size, kGlobal, near->global);
  }
  alternatives.Offer(&Request::min_micro_batch_size, kMinMicro, batch->micro);
  alternatives.OfferPolicies();
  return "the " + std::to_string(share) + " samples that " + Flag(kGlobal, batch->global) +
         " gives a rank of " + std::to_string(world) + " split evenly into micro-batches of " +
         std::to_string(batch->micro) + (request.grad_accum_steps.has_value() ? "" : " at most") +
         ", below " + Flag(kMinMicro, floor) + alternatives.Text();
}

// ---- no global batch ------------------------------------------------------------------

std::string WhyNoGlobal(const Request& request, std::int64_t world) {
  if (!request.micro_batch_size.has_value()) {
    const std::string asked = Describe(request);
    return (asked.empty() ? "nothing was asked for" : asked + " alone") +
           ": no batch follows from it; give " + std::string(kGlobal) + " or " +
           std::string(kMicro);
  }
  const std::int64_t micro = *request.micro_batch_size;
  const std::int64_t steps = request.grad_accum_steps.value_or(1);
  const std::int64_t most = std::min(kMaxShare, kMaxNumber / world);
  Alternatives alternatives(request, world);
  alternatives.Offer(&Request::micro_batch_size, kMicro, most / steps);
  if (request.grad_accum_steps.has_value()) {
    alternatives.Offer(&Request::grad_accum_steps, kAccumulation, most / micro);
  }
  return "the global batch " + Flag(kMicro, micro) + " x " + Flag(kAccumulation, steps) + " x " +
         Ranks(world) + " is beyond " + std::to_string(kMaxNumber) + " samples, or a rank's part " +
         "of it beyond " + std::to_string(kMaxShare) + alternatives.Text();
}

// ---- a global batch that cannot be -----------------------------------------------------

std::string ProductText(const std::vector<std::int64_t>& factors) {
  std::string text;
  std::int64_t product = 1;
  bool fits = true;
  for (const std::int64_t factor : factors) {
    text += (text.empty() ? "" : " x ") + std::to_string(factor);
    fits = fits && !__builtin_mul_overflow(product, factor, &product);
  }
  return text + " is " + (fits ? std::to_string(product) : "too large");
}

std::string WhyNotAllThree(const Request& request, std::int64_t world) {
  const std::int64_t micro = *request.micro_batch_size;
  const std::int64_t steps = *request.grad_accum_steps;
  const bool here = PolicyOf(request) == BatchPolicy::kFail;
  return Flag(kGlobal, *request.global_batch_size) + ", " + Flag(kMicro, micro) + " and " +
         Flag(kAccumulation, steps) + " do not multiply out on " +
         (here ? Ranks(world) + ": " + ProductText({micro, steps, world}) + ", not "
               : "any number of ranks: " + ProductText({micro, steps}) + ", no divisor of ") +
         std::to_string(*request.global_batch_size);
}

std::string WhyNotShared(const Request& request, std::int64_t world) {
  const std::int64_t global = *request.global_batch_size;
  const std::string asked = Flag(kGlobal, global);
  const std::int64_t share = CeilDivide(global, world);
  const BatchPolicy policy = PolicyOf(request);
  if (share > kMaxShare) {
    return asked + " is " + std::to_string(share) + " samples for each of " + Ranks(world) +
           ", beyond " + std::to_string(kMaxShare);
  }
  if (policy == BatchPolicy::kExact && global < world) {
    return asked + " is less than a sample for each of " + Ranks(world);
  }
  if (request.micro_batch_size.has_value()) {
    return asked + " is no multiple of " + Flag(kMicro, *request.micro_batch_size) + " x " +
           Ranks(world);
  }
  if (!request.grad_accum_steps.has_value()) {
    return asked + " cannot be shared evenly by " + Ranks(world);
  }
  const std::int64_t steps = *request.grad_accum_steps;
  const std::optional<std::int64_t> unit = Product({steps, world});
  if (policy == BatchPolicy::kExact && steps > share) {
    return Flag(kAccumulation, steps) + " is more than the " + std::to_string(share) +
           " samples that " + asked + " gives to one of " + Ranks(world);
  }
  if (unit.has_value() && (policy != BatchPolicy::kFail || global % *unit == 0)) {
    return asked + " with " + Flag(kAccumulation, steps) + " on " + Ranks(world) +
           " needs a micro-batch of " + std::to_string(CeilDivide(global, *unit)) + ", above " +
           Flag(kMaxMicro, CapOf(request));
  }
  return asked + " is no multiple of " + Flag(kAccumulation, steps) + " x " + Ranks(world);
}

// The global batches next to the one asked for.
void OfferGlobals(const Request& request, std::int64_t world, Alternatives& alternatives) {
  const std::int64_t micro = request.micro_batch_size.value_or(1);
  const std::int64_t steps = request.grad_accum_steps.value_or(1);
  const bool all = request.micro_batch_size.has_value() && request.grad_accum_steps.has_value();
  const bool any_world = PolicyOf(request) != BatchPolicy::kFail;
  // They are multiples of it.
  const std::optional<std::int64_t> unit =
      Product({any_world && !all ? 1 : micro, steps, any_world && all ? 1 : world});
  if (!unit.has_value()) {
    return;
  }
  std::int64_t most = std::min(*request.global_batch_size, kMaxNumber);
  if (world < kMaxNumber / kMaxShare) {
    most = std::min(most, kMaxShare * world);
  }
  const std::optional<std::int64_t> capped = Product({CapOf(request), *unit});
  if (request.grad_accum_steps.has_value() && !all && capped.has_value()) {
    most = std::min(most, *capped);
  }
  if (all && !any_world) {
    most = *unit;  // no other
  }
  const std::int64_t below = most / *unit * *unit;
  alternatives.Offer(&Request::global_batch_size, kGlobal, below);
  alternatives.Offer(&Request::global_batch_size, kGlobal, below + *unit);
}

// The micro-batches or micro-steps next to those asked for.
void OfferFactors(const Request& request, std::int64_t world, Alternatives& alternatives) {
  const std::int64_t global = *request.global_batch_size;
  const std::int64_t share = CeilDivide(global, world);
  const std::int64_t cap = CapOf(request);
  const bool all = request.micro_batch_size.has_value() && request.grad_accum_steps.has_value();
  if (share > kMaxShare) {
    return;
  }
  const std::int64_t micro = request.micro_batch_size.value_or(1);
  const std::int64_t steps = request.grad_accum_steps.value_or(1);
  if (all) {
    alternatives.Offer(&Request::grad_accum_steps, kAccumulation, share / micro);
    alternatives.Offer(&Request::micro_batch_size, kMicro, share / steps);
    return;
  }
  const bool even = global % world == 0;
  if (request.micro_batch_size.has_value() && even) {
    const Divisors divisors(share);
    alternatives.Offer(&Request::micro_batch_size, kMicro, divisors.AtMost(std::min(micro, cap)));
    alternatives.Offer(&Request::micro_batch_size, kMicro,
                       divisors.AtLeast(std::min(micro, share)));
  }
  if (request.grad_accum_steps.has_value()) {
    const std::int64_t fewest = std::max(std::min(steps, share), CeilDivide(share, cap));
    if (PolicyOf(request) != BatchPolicy::kFail) {
      alternatives.Offer(&Request::grad_accum_steps, kAccumulation, fewest);
    } else if (even) {
      const Divisors divisors(share);
      alternatives.Offer(&Request::grad_accum_steps, kAccumulation, divisors.AtMost(steps));
      alternatives.Offer(&Request::grad_accum_steps, kAccumulation, divisors.AtLeast(fewest));
    }
  }
}

}  // namespace

std::string WhyNoBatch(const Request& request, std::int64_t world) {
  if (const auto why = WhyCapsDisagree(request); why.has_value()) {
    return *why;
  }
  if (!request.global_batch_size.has_value()) {
    return WhyNoGlobal(request, world);
  }
  if (const auto why = WhyBelowFloor(request, world); why.has_value()) {
    return *why;
  }
  const bool all = request.micro_batch_size.has_value() && request.grad_accum_steps.has_value();
  Alternatives alternatives(request, world);
  OfferGlobals(request, world, alternatives);
  OfferFactors(request, world, alternatives);
  if (PolicyOf(request) == BatchPolicy::kFail) {
    alternatives.OfferPolicies();
  }
  return (all ? WhyNotAllThree(request, world) : WhyNotShared(request, world)) +
         alternatives.Text();
}

}  // namespace ddl::plan
