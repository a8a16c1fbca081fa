// Plans of several worlds as text: a table, or JSON (plan_command.h has its keys).
// Pure functions.
#ifndef DDLAUNCH_LAUNCHER_CLI_PLAN_TABLE_H_
#define DDLAUNCH_LAUNCHER_CLI_PLAN_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/plan/plan.h"

namespace ddl::cli {

struct WorldPlan {
  std::int64_t world_size = 0;
  absl::StatusOr<plan::Plan> plan;
};

// A line for each world, in columns that say something; then, once for all worlds of
// the same, why there is no plan, or what its numbers do not show. Lines end with \n.
std::string PlanTable(const plan::Request& request, const std::vector<WorldPlan>& worlds);
std::string PlanJson(const plan::Request& request, const std::vector<WorldPlan>& worlds);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_PLAN_TABLE_H_
