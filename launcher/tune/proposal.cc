// The choice in the place of the user's own numbers: see proposal.h.
#include "launcher/tune/proposal.h"

namespace ddl::tune {

bool IsBelowFloor(const TuneConfig& config, std::int64_t choice) {
  return choice < config.plan.min_micro_batch_size.value_or(1);
}

plan::Request ProposedRequest(const TuneConfig& config, std::int64_t choice) {
  plan::Request request = config.plan;
  request.batch_policy = request.batch_policy.value_or(plan::BatchPolicy::kNearest);
  request.micro_batch_size.reset();
  request.max_micro_batch_size.reset();
  request.grad_accum_steps.reset();
  if (IsBelowFloor(config, choice)) {
    request.min_micro_batch_size.reset();
  }
  if (request.global_batch_size.has_value()) {
    request.max_micro_batch_size = choice;
  } else {
    request.micro_batch_size = choice;
    request.grad_accum_steps = 1;
  }
  return request;
}

}  // namespace ddl::tune
