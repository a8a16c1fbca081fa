// The flags of the training plan: what is asked for, and whether it can be had.
#ifndef DDLAUNCH_LAUNCHER_CLI_PLAN_FLAGS_H_
#define DDLAUNCH_LAUNCHER_CLI_PLAN_FLAGS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/plan/plan.h"
#include "launcher/cli/arguments.h"
#include "launcher/launch_config.h"

namespace ddl::cli {

// Errors: INVALID_ARGUMENT, a value that is none; it is named with its flag.
absl::StatusOr<plan::Request> ReadPlanRequest(const Arguments& arguments);

// What no program's defaults can mend is refused whatever the number of nodes. On one
// node the world is known before anything starts, so that numbers which do
// not multiply out are refused at once. Only what the launcher decides alone is
// judged: without a batch number here the program's are used, and the rate may be
// the program's too. Errors: INVALID_ARGUMENT from plan::Solve.
absl::Status CheckPlan(const LaunchConfig& config);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_PLAN_FLAGS_H_
