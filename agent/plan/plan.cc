// Solve: the batch first, then what follows from it.
#include "agent/plan/plan.h"

#include <cstdint>
#include <optional>
#include <string>

#include "agent/base/status_macros.h"
#include "agent/plan/batch.h"
#include "agent/plan/numbers.h"
#include "agent/plan/rate.h"
#include "agent/plan/schedule.h"

namespace ddl::plan {
namespace {

absl::Status CheckWorld(std::int64_t world) {
  return world >= 1 && world <= kMaxNumber
             ? absl::OkStatus()
             : absl::InvalidArgumentError("a world of " + std::to_string(world) +
                                          " ranks is out of range: 1 to " +
                                          std::to_string(kMaxNumber));
}

}  // namespace

bool Request::empty() const {
  return *this == Request();
}

bool Request::has_batch() const {
  return global_batch_size.has_value() || micro_batch_size.has_value() ||
         grad_accum_steps.has_value();
}

bool Plan::even() const {
  const auto product = Product({micro_batch_size, grad_accum_steps, world_size});
  return product == global_batch_size;
}

absl::StatusOr<Plan> Solve(const Request& request, std::int64_t world_size) {
  DDL_RETURN_IF_ERROR(CheckWorld(world_size));
  DDL_RETURN_IF_ERROR(CheckBatch(request));
  DDL_RETURN_IF_ERROR(CheckRate(request));
  DDL_RETURN_IF_ERROR(CheckSchedule(request));
  const std::optional<Batch> asked = SolveBatch(request, world_size);
  if (!asked.has_value()) {
    return absl::InvalidArgumentError(WhyNoBatch(request, world_size));
  }
  const Batch batch = UnderLesson(request, WithinAdam(request, *asked, world_size), world_size);
  Plan plan;
  plan.world_size = world_size;
  plan.global_batch_size = batch.global;
  plan.micro_batch_size = batch.micro;
  plan.grad_accum_steps = batch.accumulation;
  DDL_RETURN_IF_ERROR(SolveRate(request, plan));
  DDL_RETURN_IF_ERROR(SolveSchedule(request, plan));
  return plan;
}

}  // namespace ddl::plan
