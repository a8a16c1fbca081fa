// A key store, barriers and a plan for ranks that share a process.
#include "worker_sdk/src/memory_gateway.h"

#include <string>

#include "agent/base/status_macros.h"
#include "worker_sdk/src/plan_bridge.h"

namespace ddl::internal {
absl::Status MemoryGateway::Publish(std::string_view key, std::string_view value) {
  DDL_RETURN_IF_ERROR(CheckKeyValue(key, value));
  const std::lock_guard lock(mutex_);
  const auto [it, inserted] = values_.emplace(key, value);
  if (!inserted && it->second != value) {
    return absl::AlreadyExistsError("key \"" + std::string(key) +
                                    "\" was published before with another value");
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryGateway::Fetch(std::string_view key, Timeout timeout,
                                                 const std::stop_token& stop) {
  DDL_RETURN_IF_ERROR(CheckKey(key));
  std::unique_lock lock(mutex_);
  const auto published = [&] { return values_.find(key) != values_.end(); };
  // In a world of one nobody else could publish it later.
  if (!published() && (world_size_ == 1 || !changed_.wait_for(lock, stop, timeout, published))) {
    if (stop.stop_requested()) {
      return absl::CancelledError("waiting for key \"" + std::string(key) + "\" was given up");
    }
    return absl::DeadlineExceededError(
        "key \"" + std::string(key) + "\" was not published by " +
        (world_size_ == 1 ? "this program, the only rank" : "any rank within " + ToText(timeout)));
  }
  return values_.find(key)->second;
}

absl::Status MemoryGateway::Barrier(std::string_view name, Timeout timeout,
                                    const std::stop_token& stop) {
  DDL_RETURN_IF_ERROR(CheckKey(name));
  std::unique_lock lock(mutex_);
  int& arrived = arrived_[std::string(name)];
  if (arrived == world_size_) {
    return absl::AlreadyExistsError("barrier \"" + std::string(name) +
                                    "\" was used before in this round");
  }
  ++arrived;
  changed_.notify_all();
  if (!changed_.wait_for(lock, stop, timeout, [&] { return arrived == world_size_; })) {
    if (stop.stop_requested()) {
      return absl::CancelledError("barrier \"" + std::string(name) + "\" was given up");
    }
    return absl::DeadlineExceededError(
        "barrier \"" + std::string(name) + "\": " + std::to_string(world_size_ - arrived) + " of " +
        std::to_string(world_size_) + " ranks did not come within " + ToText(timeout));
  }
  return absl::OkStatus();
}

absl::StatusOr<AgreedPlan> MemoryGateway::AgreePlan(const PlanDefaults& defaults,
                                                    Timeout /*timeout*/) {
  const std::lock_guard lock(mutex_);
  plan::Request request = ToCore(defaults);
  request.learned_max_micro_batch_size = request_.learned_max_micro_batch_size;
  request.uneven_micro_steps = request_.uneven_micro_steps;
  DDL_ASSIGN_OR_RETURN(const plan::Plan plan, plan::Solve(request, world_size_));
  if (!in_force_.has_value()) {
    request_ = request;
    in_force_ = PlanRevision{0, FromCore(plan), 0, ""};
  }
  return AgreedPlan{FromCore(plan), MaxMicroBatchSize(request)};
}

absl::StatusOr<PlanRevision> MemoryGateway::ReportOutOfMemory(const OutOfMemoryReport& report) {
  const std::lock_guard lock(mutex_);
  if (report.exiting) {
    return PlanRevision{};
  }
  if (!in_force_.has_value()) {
    return absl::FailedPreconditionError("no plan was agreed on, so there is no smaller one");
  }
  const std::int64_t micro = in_force_->plan.micro_batch_size;
  if (report.micro_batch_size > micro) {
    return *in_force_;  // another rank has said it already
  }
  // Who reports and goes on uses RunStep, which splits any share.
  request_.uneven_micro_steps = true;
  DDL_ASSIGN_OR_RETURN(const plan::Lowered lowered, plan::Lower(request_, ToCore(in_force_->plan)));
  request_ = lowered.request;
  in_force_ = PlanRevision{in_force_->revision + 1, FromCore(lowered.plan), report.step,
                           "out of memory in step " + std::to_string(report.step) +
                               " with a micro-batch of " + std::to_string(micro)};
  changed_.notify_all();
  return *in_force_;
}

absl::StatusOr<PlanRevision> MemoryGateway::WatchPlan(int after, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop,
                     [&] { return in_force_.has_value() && in_force_->revision > after; })) {
    return absl::CancelledError("watching the plan was given up");
  }
  return *in_force_;
}

absl::Status MemoryGateway::MarkGroup(std::string_view /*name*/, bool /*open*/) {
  return absl::OkStatus();
}

absl::Status MemoryGateway::ReportProgress(std::int64_t /*step*/, std::int64_t /*total_steps*/,
                                           double /*samples_per_s*/) {
  return absl::OkStatus();
}

}  // namespace ddl::internal
