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

absl::StatusOr<std::string> MemoryGateway::Fetch(std::string_view key, Timeout timeout) {
  DDL_RETURN_IF_ERROR(CheckKey(key));
  std::unique_lock lock(mutex_);
  const auto published = [&] { return values_.find(key) != values_.end(); };
  // In a world of one nobody else could publish it later.
  if (!published() && (world_size_ == 1 || !changed_.wait_for(lock, timeout, published))) {
    return absl::DeadlineExceededError(
        "key \"" + std::string(key) + "\" was not published by " +
        (world_size_ == 1 ? "this program, the only rank" : "any rank within " + ToText(timeout)));
  }
  return values_.find(key)->second;
}

absl::Status MemoryGateway::Barrier(std::string_view name, Timeout timeout) {
  DDL_RETURN_IF_ERROR(CheckKey(name));
  std::unique_lock lock(mutex_);
  int& arrived = arrived_[std::string(name)];
  if (arrived == world_size_) {
    return absl::AlreadyExistsError("barrier \"" + std::string(name) +
                                    "\" was used before in this round");
  }
  ++arrived;
  changed_.notify_all();
  if (!changed_.wait_for(lock, timeout, [&] { return arrived == world_size_; })) {
    return absl::DeadlineExceededError(
        "barrier \"" + std::string(name) + "\": " + std::to_string(world_size_ - arrived) + " of " +
        std::to_string(world_size_) + " ranks did not come within " + ToText(timeout));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MemoryGateway::AgreePlan(const PlanDefaults& defaults, Timeout /*timeout*/) {
  return SolvePlan(defaults, world_size_);
}

absl::Status MemoryGateway::MarkGroup(std::string_view /*name*/, bool /*open*/) {
  return absl::OkStatus();
}

absl::Status MemoryGateway::ReportProgress(std::int64_t /*step*/, std::int64_t /*total_steps*/,
                                           double /*samples_per_s*/) {
  return absl::OkStatus();
}

}  // namespace ddl::internal
