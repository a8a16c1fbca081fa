// What the numbers of a plan do not show, in words for the log.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/plan/batch.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"
#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

// ---- the micro-batch ----------------------------------------------------------------

// The most samples of a micro-batch that fit, where the even split of a share is not
// the user's own choice: kFail's cap, or a lesson that bound. Else nothing.
std::optional<std::int64_t> FitsOf(const Request& request, const Plan& plan) {
  std::optional<std::int64_t> fits;
  if (PolicyOf(request) == BatchPolicy::kFail && request.global_batch_size.has_value() &&
      !request.micro_batch_size.has_value() && !request.grad_accum_steps.has_value()) {
    fits = request.max_micro_batch_size;
  }
  if (request.learned_max_micro_batch_size.has_value()) {
    const std::optional<Batch> asked = SolveBatch(request, plan.world_size);
    if (asked.has_value() && asked->micro > *request.learned_max_micro_batch_size) {
      fits = std::min(*request.learned_max_micro_batch_size, fits.value_or(kMaxShare));
    }
  }
  return fits;
}

// ": --global-batch-size=1020 would train faster", which micro-batches near `fits` split.
std::string Faster(const Request& request, const Plan& plan, std::int64_t fits) {
  const std::optional<Batch> near =
      NearestBatch(request, plan.global_batch_size, fits, plan.world_size);
  return near.has_value() && near->global != plan.global_batch_size
             ? ": " + Flag(kGlobal, near->global) + " would train faster"
             : "";
}

std::string MicroWarning(const Request& request, const Plan& plan) {
  const std::int64_t micro = plan.micro_batch_size;
  const std::int64_t share = RankBatchSize(plan, 0);
  const std::int64_t floor = request.min_micro_batch_size.value_or(1);
  const std::string below = micro < floor ? ", below " + Flag(kMinMicro, floor) : "";
  const std::optional<std::int64_t> fits = FitsOf(request, plan);
  if (fits.has_value() && plan.even() && plan.grad_accum_steps > 1 && micro <= *fits / 2) {
    const bool learned = fits == request.learned_max_micro_batch_size;
    return (learned ? "out of memory left micro-batches of up to " + std::to_string(*fits)
                    : "micro-batches of up to " + std::to_string(*fits) + " fit") +
           ", but the " + std::to_string(share) +
           " samples of a rank split evenly into no more than " + std::to_string(micro) + below +
           Faster(request, plan, *fits);
  }
  if (below.empty()) {
    return "";
  }
  return plan.grad_accum_steps == 1
             ? "a rank has only " + std::to_string(share) + " samples in a step" + below
             : "the " + std::to_string(share) +
                   " samples of a rank are split into micro-batches of " +
                   (plan.even() ? "" : "up to ") + std::to_string(micro) + below;
}

// ---- the schedule --------------------------------------------------------------------

std::string WarmupWarning(const Plan& plan) {
  if (plan.total_samples == 0 || plan.warmup_samples < plan.total_samples) {
    return "";
  }
  return "the warm-up of " + std::to_string(plan.warmup_samples) +
         " samples is not over before the training of " + std::to_string(plan.total_samples) +
         " is: the rate never reaches " +
         (plan.learning_rate.has_value() ? Rounded(*plan.learning_rate) : "its full value");
}

std::string DecayWarning(const Plan& plan) {
  if (plan.total_samples == 0 || plan.lr_decay != LrDecay::kStep ||
      plan.lr_decay_samples < plan.total_samples) {
    return "";
  }
  return "the first decay, after " + std::to_string(plan.lr_decay_samples) +
         " samples, lies beyond the training of " + std::to_string(plan.total_samples) +
         ": the rate is never lowered";
}

}  // namespace

std::vector<std::string> Warnings(const Request& request, const Plan& plan) {
  std::vector<std::string> warnings = {MicroWarning(request, plan), WarmupWarning(plan),
                                       DecayWarning(plan)};
  warnings.erase(std::remove(warnings.begin(), warnings.end(), std::string()), warnings.end());
  return warnings;
}

}  // namespace ddl::plan
