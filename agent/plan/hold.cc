// What stays when something changes: the launcher's word over the program's, the
// global batch over another world, everything but the split of a step when a device
// runs out of memory.
#include <algorithm>
#include <cstdint>
#include <string>

#include "agent/plan/batch.h"
#include "agent/plan/numbers.h"
#include "agent/plan/plan.h"

namespace ddl::plan {

Request Merge(const Request& launcher, const Request& program) {
  const auto either = [](const auto& first, const auto& second) {
    return first.has_value() ? first : second;
  };
  const Request& batch = launcher.has_batch() ? launcher : program;
  Request merged;
  merged.global_batch_size = batch.global_batch_size;
  merged.micro_batch_size = batch.micro_batch_size;
  merged.grad_accum_steps = batch.grad_accum_steps;
  // The policy goes with the batch: for the launcher's batch, none is the program's.
  merged.batch_policy = launcher.has_batch() ? launcher.batch_policy
                                             : either(launcher.batch_policy, program.batch_policy);
  const auto take = [&](auto Request::*field) {
    merged.*field = either(launcher.*field, program.*field);
  };
  take(&Request::max_micro_batch_size);
  take(&Request::min_micro_batch_size);
  take(&Request::base_lr);
  take(&Request::base_batch_size);
  take(&Request::lr_scaling);
  take(&Request::total_samples);
  take(&Request::epoch_samples);
  take(&Request::warmup_start_lr);
  take(&Request::lr_decay);
  take(&Request::lr_decay_factor);
  take(&Request::adam_beta1);
  take(&Request::adam_beta2);
  take(&Request::adam_eps);
  take(&Request::scale_adam);
  // One length, said in one of several ways, goes together too.
  const bool launcher_has_warmup = launcher.warmup_steps.has_value() ||
                                   launcher.warmup_ratio.has_value() ||
                                   launcher.warmup_epochs.has_value();
  const Request& warmup = launcher_has_warmup ? launcher : program;
  merged.warmup_steps = warmup.warmup_steps;
  merged.warmup_ratio = warmup.warmup_ratio;
  merged.warmup_epochs = warmup.warmup_epochs;
  const bool launcher_has_interval =
      launcher.lr_decay_steps.has_value() || launcher.lr_decay_epochs.has_value();
  const Request& interval = launcher_has_interval ? launcher : program;
  merged.lr_decay_steps = interval.lr_decay_steps;
  merged.lr_decay_epochs = interval.lr_decay_epochs;
  return merged;
}

Request HoldGlobal(const Request& request, const Plan& plan) {
  Request held = request;
  held.global_batch_size = request.global_batch_size.value_or(plan.global_batch_size);
  held.micro_batch_size.reset();
  held.grad_accum_steps.reset();
  // What was asked for bounds the micro-batch. Where nothing was, the micro-
  // batch that is known to fit a device does: a smaller world must not need
  // more memory.
  if (request.micro_batch_size.has_value()) {
    held.max_micro_batch_size =
        std::min(*request.micro_batch_size, request.max_micro_batch_size.value_or(kMaxNumber));
  } else if (!request.max_micro_batch_size.has_value()) {
    held.max_micro_batch_size =
        std::max(plan.micro_batch_size, request.min_micro_batch_size.value_or(1));
  }
  return held;
}

absl::StatusOr<Lowered> Lower(const Request& request, const Plan& plan) {
  const std::int64_t floor = request.min_micro_batch_size.value_or(1);
  Lowered lowered{request, plan};
  lowered.request.learned_max_micro_batch_size =
      std::max(CeilDivide(plan.micro_batch_size, 2), floor);
  const Batch split = UnderLesson(
      lowered.request, {plan.global_batch_size, plan.micro_batch_size, plan.grad_accum_steps},
      plan.world_size);
  if (split.micro >= plan.micro_batch_size || split.micro < floor) {
    std::string text =
        "a micro-batch of " + std::to_string(plan.micro_batch_size) + " cannot be lowered: ";
    if (split.micro < plan.micro_batch_size && plan.micro_batch_size > floor) {
      text += "the next that splits the " +
              std::to_string(CeilDivide(plan.global_batch_size, plan.world_size)) +
              " samples of a rank is " + std::to_string(split.micro) + ", below ";
    } else if (floor > 1) {
      text += "it is not above ";
    }
    text += floor > 1
                ? "--min-micro-batch-size=" + std::to_string(floor) +
                      "; lower that, or use a smaller model, mixed precision or shorter samples"
                : "one sample does not fit the device; use a smaller model, mixed precision "
                  "or shorter samples";
    return absl::FailedPreconditionError(text);
  }
  lowered.plan.micro_batch_size = split.micro;
  lowered.plan.grad_accum_steps = split.accumulation;
  return lowered;
}

std::int64_t RankBatchSize(const Plan& plan, std::int64_t rank) {
  return plan.global_batch_size / plan.world_size +
         (rank < plan.global_batch_size % plan.world_size ? 1 : 0);
}

}  // namespace ddl::plan
