// Solve: the batch first, then what follows from it.
#include "agent/plan/plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/status_macros.h"
#include "agent/plan/batch.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"
#include "agent/plan/rate.h"
#include "agent/plan/schedule.h"

namespace ddl::plan {
namespace {

absl::Status CheckRange(std::string_view name, std::optional<std::int64_t> value,
                        std::int64_t most) {
  if (!value.has_value() || (*value >= 1 && *value <= most)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(Flag(name, *value) + " is out of range: 1 to " +
                                    std::to_string(most));
}

absl::Status CheckRanges(const Request& request, std::int64_t world) {
  if (world < 1 || world > kMaxNumber) {
    return absl::InvalidArgumentError("a world of " + std::to_string(world) +
                                      " ranks is out of range: 1 to " + std::to_string(kMaxNumber));
  }
  DDL_RETURN_IF_ERROR(CheckRange(kGlobal, request.global_batch_size, kMaxNumber));
  DDL_RETURN_IF_ERROR(CheckRange(kMicro, request.micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(CheckRange(kMaxMicro, request.max_micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(CheckRange(kMinMicro, request.min_micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(
      CheckRange("the learned micro-batch", request.learned_max_micro_batch_size, kMaxShare));
  DDL_RETURN_IF_ERROR(CheckRange(kAccumulation, request.grad_accum_steps, kMaxShare));
  return CheckRange(kBaseBatch, request.base_batch_size, kMaxNumber);
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
  DDL_RETURN_IF_ERROR(CheckRate(request));
  DDL_RETURN_IF_ERROR(CheckSchedule(request));
  const std::optional<Batch> asked = SolveBatch(request, world_size);
  if (!asked.has_value()) {
    return absl::InvalidArgumentError(WhyNoBatch(request, world_size));
  }
  const Batch batch = UnderLesson(request, *asked, world_size);
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
