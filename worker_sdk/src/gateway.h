// Gateway: what a Context needs from its node's agent, as an interface, so that
// a world of one and tests can do without an agent.
#ifndef DDLAUNCH_WORKER_SDK_SRC_GATEWAY_H_
#define DDLAUNCH_WORKER_SDK_SRC_GATEWAY_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/context.h"
#include "ddl/out_of_memory.h"

namespace ddl::internal {

// This worker's place. What Context's accessors return.
struct Membership {
  std::int64_t round = 0;
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  int restart_count = 0;
  std::string job_id = "none";
  std::string address = "127.0.0.1";
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  bool has_launcher = false;
};

// A micro-step that did not fit.
struct OutOfMemoryReport {
  std::int64_t micro_batch_size = 0;
  std::int64_t step = 0;
  MemoryUse memory;
  std::string text;
  bool exiting = false;  // the worker cannot repeat the step, and will exit
};

// A plan that takes the place of the round's, from optimizer step `step` on.
struct PlanRevision {
  int revision = 0;  // counts up in a round; 0 is the plan it began with
  Plan plan;
  std::int64_t step = 0;
  std::string text;  // who ran out of memory, and what changed
};

// What AgreePlan is answered with.
struct AgreedPlan {
  Plan plan;
  // The largest micro-batch that was asked for or that running out of memory has
  // taught; 0: none.
  std::int64_t max_micro_batch_size = 0;
};

// Thread safe. Errors as documented on Context's methods of the same names. A
// call that takes a stop token ends with CANCELLED when stop is requested.
class Gateway {
 public:
  using Timeout = std::chrono::milliseconds;

  virtual ~Gateway() = default;
  virtual absl::Status Publish(std::string_view key, std::string_view value) = 0;
  virtual absl::StatusOr<std::string> Fetch(std::string_view key, Timeout timeout,
                                            const std::stop_token& stop) = 0;
  virtual absl::Status Barrier(std::string_view name, Timeout timeout,
                               const std::stop_token& stop) = 0;
  // Of a plan whose hash came out the same here. Whether it fits this world, Context
  // checks.
  virtual absl::StatusOr<AgreedPlan> AgreePlan(const PlanDefaults& defaults, Timeout timeout) = 0;
  // The plan with a smaller micro-batch; of no meaning when `report` is exiting.
  // FAILED_PRECONDITION: no plan, or the micro-batch is at its floor.
  virtual absl::StatusOr<PlanRevision> ReportOutOfMemory(const OutOfMemoryReport& report) = 0;
  // Waits, however long, for a later revision than `after`.
  virtual absl::StatusOr<PlanRevision> WatchPlan(int after, const std::stop_token& stop) = 0;
  // See GroupMark.
  virtual absl::Status MarkGroup(std::string_view name, bool open) = 0;
  virtual absl::Status ReportProgress(std::int64_t step, std::int64_t total_steps,
                                      double samples_per_s) = 0;
};

struct PlanSeat;  // plan_watch.h

// What only the SDK and its tests may do with a context.
struct ContextAccess {
  // A context that was not read from the environment.
  static Context Make(Membership membership, std::shared_ptr<Gateway> gateway,
                      const ContextOptions& options);
  // For backends, which outlive the calls that are given a context.
  static std::shared_ptr<Gateway> GatewayOf(const Context& context);
  static std::shared_ptr<PlanSeat> SeatOf(const Context& context);
};

// INVALID_ARGUMENT when the key or value is beyond the wire's limits.
absl::Status CheckKey(std::string_view key);
absl::Status CheckKeyValue(std::string_view key, std::string_view value);

// "30 s", "250 ms"
std::string ToText(std::chrono::milliseconds duration);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_GATEWAY_H_
