// Solves the request for each world; the forms of the answer are plan_table.h's.
#include "launcher/cli/plan_command.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/help.h"
#include "launcher/cli/plan_flags.h"
#include "launcher/cli/plan_table.h"
#include "launcher/cli/values.h"
#include "launcher/exit_code.h"

namespace ddl::cli {
namespace {

const std::vector<std::int64_t> kDefaultWorlds = {1, 2, 3, 4, 5, 6, 7, 8};

}  // namespace

absl::StatusOr<ParseResult> ParsePlanCommand(const std::vector<std::string>& args,
                                             const Surroundings& surroundings) {
  DDL_ASSIGN_OR_RETURN(const Arguments arguments,
                       ScanArguments(args, surroundings.environment, Command::kPlan));
  if (arguments.Find(FlagId::kHelp) != nullptr) {
    return PrintAndExit{HelpText(Command::kPlan)};
  }
  if (arguments.program.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(*arguments.program,
                     ": ddlaunch plan runs no program (one that is called plan is run as ./plan)"));
  }
  DDL_ASSIGN_OR_RETURN(plan::Request request, ReadPlanRequest(arguments));
  DDL_ASSIGN_OR_RETURN(const auto worlds, ReadFlag(arguments, FlagId::kWorld, ParseWorlds));
  DDL_ASSIGN_OR_RETURN(const bool json, ReadSwitch(arguments, FlagId::kJson));
  if (!request.global_batch_size.has_value() && !request.micro_batch_size.has_value()) {
    // The same for each world; a table would bury it.
    return absl::InvalidArgumentError(
        "no batch to plan: give --global-batch-size or --micro-batch-size (see ddlaunch plan "
        "--help)");
  }
  // As for a job whose size may change: a table of refusals helps nobody.
  request.batch_policy = request.batch_policy.value_or(plan::BatchPolicy::kNearest);
  std::vector<WorldPlan> plans;
  for (const std::int64_t world : worlds.value_or(kDefaultWorlds)) {
    plans.push_back({world, plan::Solve(request, world)});
  }
  const bool any = std::any_of(plans.begin(), plans.end(),
                               [](const WorldPlan& world) { return world.plan.ok(); });
  return PrintAndExit{json ? PlanJson(request, plans) : PlanTable(request, plans),
                      any ? 0 : kExitUsage};
}

}  // namespace ddl::cli
