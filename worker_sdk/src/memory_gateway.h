// A gateway inside one process: a world of one without a launcher, and, in
// tests, a world of threads.
#ifndef DDLAUNCH_WORKER_SDK_SRC_MEMORY_GATEWAY_H_
#define DDLAUNCH_WORKER_SDK_SRC_MEMORY_GATEWAY_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "agent/plan/plan.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// Shared by all ranks of one world. Thread safe.
class MemoryGateway final : public Gateway {
 public:
  // REQUIRES: world_size >= 1.
  explicit MemoryGateway(int world_size) : world_size_(world_size) {}

  absl::Status Publish(std::string_view key, std::string_view value) override;
  absl::StatusOr<std::string> Fetch(std::string_view key, Timeout timeout,
                                    const std::stop_token& stop) override;
  absl::Status Barrier(std::string_view name, Timeout timeout,
                       const std::stop_token& stop) override;
  // Solves the defaults of whoever asks; it does not compare them. Remembers what
  // running out of memory has taught.
  absl::StatusOr<AgreedPlan> AgreePlan(const PlanDefaults& defaults, Timeout timeout) override;
  absl::StatusOr<PlanRevision> ReportOutOfMemory(const OutOfMemoryReport& report) override;
  absl::StatusOr<PlanRevision> WatchPlan(int after, const std::stop_token& stop) override;
  absl::Status MarkGroup(std::string_view name, bool open) override;
  absl::Status ReportProgress(std::int64_t step, std::int64_t total_steps,
                              double samples_per_s) override;

 private:
  const int world_size_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::string, std::less<>> values_;  // guarded by mutex_
  std::map<std::string, int, std::less<>> arrived_;         // guarded by mutex_
  plan::Request request_;                                   // of in_force_; guarded by mutex_
  std::optional<PlanRevision> in_force_;                    // guarded by mutex_
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_MEMORY_GATEWAY_H_
