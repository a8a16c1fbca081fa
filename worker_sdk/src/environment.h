// The worker's environment, as ddlaunch (and torchrun) set it. Pure: the lookup
// is passed in.
#ifndef DDLAUNCH_WORKER_SDK_SRC_ENVIRONMENT_H_
#define DDLAUNCH_WORKER_SDK_SRC_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// The value of a variable; nothing when it is not set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

struct Environment {
  std::string gateway;  // DDL_GATEWAY; empty: no launcher
  // RANK, WORLD_SIZE and the rest; what is not set has the default of a world
  // of one.
  Membership membership;
  bool has_rank = false;        // RANK was set
  bool has_world_size = false;  // WORLD_SIZE was set
};

// Errors: INVALID_ARGUMENT, a variable that is no number or out of range;
// FAILED_PRECONDITION, a gateway without LOCAL_RANK or DDL_ROUND, or a world
// above one without a gateway.
absl::StatusOr<Environment> ReadEnvironment(const Lookup& lookup);

// The agent's answer against the environment. FAILED_PRECONDITION: they differ,
// as when a variable leaked in from another job.
absl::Status CheckAgainst(const Environment& environment, const Membership& registered);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_ENVIRONMENT_H_
