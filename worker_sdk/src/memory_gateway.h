// A gateway inside one process: a world of one without a launcher, and, in
// tests, a world of threads.
#ifndef DDLAUNCH_WORKER_SDK_SRC_MEMORY_GATEWAY_H_
#define DDLAUNCH_WORKER_SDK_SRC_MEMORY_GATEWAY_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// Shared by all ranks of one world. Thread safe.
class MemoryGateway final : public Gateway {
 public:
  // REQUIRES: world_size >= 1.
  explicit MemoryGateway(int world_size) : world_size_(world_size) {}

  absl::Status Publish(std::string_view key, std::string_view value) override;
  absl::StatusOr<std::string> Fetch(std::string_view key, Timeout timeout) override;
  absl::Status Barrier(std::string_view name, Timeout timeout) override;
  // Solves the defaults of whoever asks; it does not compare them.
  absl::StatusOr<Plan> AgreePlan(const PlanDefaults& defaults, Timeout timeout) override;
  absl::Status MarkGroup(std::string_view name, bool open) override;
  absl::Status ReportProgress(std::int64_t step, std::int64_t total_steps,
                              double samples_per_s) override;

 private:
  const int world_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;  // guarded by mutex_
  std::map<std::string, int, std::less<>> arrived_;         // guarded by mutex_
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_MEMORY_GATEWAY_H_
