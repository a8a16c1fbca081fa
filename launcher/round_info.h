// RoundInfo and WorkerExit: a node's place in one round, and how each of its workers
// ended. Plain values.
#ifndef DDLAUNCH_LAUNCHER_ROUND_INFO_H_
#define DDLAUNCH_LAUNCHER_ROUND_INFO_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/plan/plan.h"
#include "launcher/binding/node_devices.h"

namespace ddl {

// This node's place in a round: what a worker's environment is made from.
struct RoundInfo {
  std::int64_t round = 0;
  std::int32_t restart_count = 0;
  std::int32_t max_restarts = 0;
  std::int32_t node_rank = 0;
  std::int32_t num_nodes = 1;
  std::int32_t first_rank = 0;
  std::int32_t nproc = 1;
  std::int32_t world_size = 1;
  std::string master_addr;
  std::uint16_t master_port = 0;
  std::string gateway;  // "unix:/path": DDL_GATEWAY
  std::string job_id;   // TORCHELASTIC_RUN_ID, DDL_JOB_ID
  std::optional<plan::Plan> plan;
  // "host:port" of each worker, by rank; null: not known, or nobody asked.
  std::shared_ptr<const std::vector<std::string>> worker_addresses;
  std::uint16_t first_worker_port = 0;  // rank 0's own, on master_addr; 0: none was given
  NodeDevices devices;
};

// How one worker ended.
struct WorkerExit {
  std::int32_t local_rank = 0;
  std::int32_t rank = 0;
  std::int64_t pid = 0;        // 0: it never ran
  std::int32_t exit_code = 0;  // when term_signal is 0
  std::int32_t term_signal = 0;
  std::int64_t wall_time_s = 0;  // since 1970: of its error file, else of its end
  Instant ended_at{};
  // When it failed: it may have written its error file long before it ended.
  Instant failed_at{};
  std::string error_text;  // error.json's message, or the last stderr lines
  std::string error_file;  // empty: none was written, or none is kept; both valid UTF-8
  std::string error_path;  // the same, also if it will not be kept
  std::string hint;        // what usually is behind the failure; may be empty
  Instant stderr_at{};     // when it wrote to stderr last
  [[nodiscard]] bool ok() const { return exit_code == 0 && term_signal == 0; }
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_ROUND_INFO_H_
