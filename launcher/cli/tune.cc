// Which flags go to a trial, which to the proposal, and which are tune's own.
#include "launcher/cli/tune.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/help.h"
#include "launcher/cli/plan_flags.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

// A trial is one node that meets nobody, with its output in a file of its own.
bool IsForSeveralNodesOrLogs(FlagId id) {
  switch (id) {
    case FlagId::kNnodes:
    case FlagId::kNodeRank:
    case FlagId::kLocalAddr:
    case FlagId::kMaxRestarts:
    case FlagId::kQuiet:
      return true;
    case FlagId::kWorkerStore:
    case FlagId::kVerbose:
      return false;
    default:
      return Flag(id).group == FlagGroup::kMeeting || Flag(id).group == FlagGroup::kOutput;
  }
}

// What tune sets, or proposes.
bool IsOfTheBatch(FlagId id) {
  switch (id) {
    case FlagId::kGlobalBatchSize:
    case FlagId::kMicroBatchSize:
    case FlagId::kMaxMicroBatchSize:
    case FlagId::kMinMicroBatchSize:
    case FlagId::kGradAccumSteps:
    case FlagId::kBatchPolicy:
    // These are refused, or diverge, at batches that only a trial has.
    case FlagId::kBaseLr:
    case FlagId::kBaseBatchSize:
    case FlagId::kLrScaling:
    case FlagId::kScaleAdam:
      return true;
    default:
      return false;
  }
}

bool HoldsForTrials(FlagId id) {
  return Flag(id).BelongsTo(Command::kLaunch) && Flag(id).group != FlagGroup::kOther &&
         id != FlagId::kNprocPerNode && !IsForSeveralNodesOrLogs(id) && !IsOfTheBatch(id);
}

// What the proposal repeats as it was given.
bool HoldsForProposal(FlagId id) {
  const FlagGroup group = Flag(id).group;
  return (group == FlagGroup::kPlan || group == FlagGroup::kRate) && id != FlagId::kWorld &&
         id != FlagId::kMicroBatchSize && id != FlagId::kMaxMicroBatchSize &&
         id != FlagId::kMinMicroBatchSize && id != FlagId::kGradAccumSteps;
}

absl::Status SplitFlags(const Arguments& arguments, TuneConfig& config) {
  for (const auto& [id, value] : arguments.values) {
    const std::string name(Flag(id).name);
    std::string text = value.text;
    if (!Flag(id).takes_value()) {
      DDL_ASSIGN_OR_RETURN(const bool on, ReadSwitch(arguments, id));
      text = on ? "true" : "false";
    }
    if (HoldsForTrials(id) && text != "false") {
      config.launch_flags.push_back(Flag(id).takes_value() ? absl::StrCat("--", name, "=", text)
                                                           : absl::StrCat("--", name));
    }
    if (HoldsForProposal(id)) {
      config.plan_flags.emplace_back(name, text);
    }
  }
  return absl::OkStatus();
}

// All trials train with one rate, that of the smallest micro-batch: where training
// diverges, many a program becomes slower, or faster.
absl::Status AddRate(TuneConfig& config) {
  plan::Request request = config.plan;
  if (!request.base_lr.has_value()) {
    return absl::OkStatus();
  }
  request.global_batch_size.reset();
  request.max_micro_batch_size.reset();
  request.min_micro_batch_size.reset();
  request.micro_batch_size = config.first_micro_batch_size;
  request.grad_accum_steps = 1;
  request.scale_adam.reset();
  DDL_ASSIGN_OR_RETURN(const plan::Plan plan, plan::Solve(request, 1));
  config.launch_flags.push_back(
      absl::StrCat("--base-lr=", plan.learning_rate.value_or(*request.base_lr)));
  return absl::OkStatus();
}

absl::StatusOr<double> ParsePart(std::string_view text) {
  DDL_ASSIGN_OR_RETURN(const double part, ParseNumber(text, Zero::kRefused));
  return part <= 1 ? absl::StatusOr<double>(part)
                   : absl::InvalidArgumentError("must be above 0 and at most 1");
}

absl::Status ReadTrialFlags(const Arguments& arguments, TuneConfig& config) {
  constexpr std::int64_t kMostSteps = 1'000'000;
  const auto seconds = [](std::string_view text) { return ParseSeconds(text, Zero::kRefused); };
  if (const RawValue* const directory = arguments.Find(FlagId::kTuneDir); directory != nullptr) {
    if (directory->text.empty()) {
      return BadValue(*directory, "must be a directory");
    }
    config.directory = directory->text;
  }
  DDL_ASSIGN_OR_RETURN(const auto steps,
                       ReadFlag(arguments, FlagId::kTrialSteps, [](std::string_view text) {
                         return ParseInteger(text, 1, kMostSteps);
                       }));
  config.trial_steps = steps.value_or(config.trial_steps);
  DDL_ASSIGN_OR_RETURN(const auto time, ReadFlag(arguments, FlagId::kTrialSeconds, seconds));
  config.trial_time = time.value_or(config.trial_time);
  DDL_ASSIGN_OR_RETURN(const auto timeout, ReadFlag(arguments, FlagId::kTrialTimeout, seconds));
  config.trial_timeout = timeout.value_or(config.trial_timeout);
  DDL_ASSIGN_OR_RETURN(const auto limit, ReadFlag(arguments, FlagId::kMemoryLimit, ParsePart));
  config.memory_limit = limit.value_or(config.memory_limit);
  DDL_ASSIGN_OR_RETURN(config.check_loss, ReadSwitch(arguments, FlagId::kCheckLoss));
  DDL_ASSIGN_OR_RETURN(config.check_scaling, ReadSwitch(arguments, FlagId::kCheckScaling));
  return absl::OkStatus();
}

absl::Status ReadBounds(const Arguments& arguments, TuneConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(config.plan, ReadPlanRequest(arguments));
  const plan::Request& plan = config.plan;
  config.first_micro_batch_size = plan.min_micro_batch_size.value_or(1);
  for (const auto& bound : {plan.max_micro_batch_size, plan.global_batch_size}) {
    config.max_micro_batch_size =
        std::min(config.max_micro_batch_size, bound.value_or(config.max_micro_batch_size));
  }
  if (config.first_micro_batch_size > config.max_micro_batch_size) {
    return BadValue(*arguments.Find(FlagId::kMinMicroBatchSize),
                    absl::StrCat("is above ", config.max_micro_batch_size,
                                 ", the largest micro-batch that may be"));
  }
  for (const FlagId id : {FlagId::kMicroBatchSize, FlagId::kGradAccumSteps}) {
    if (const RawValue* const given = arguments.Find(id); given != nullptr) {
      notices.push_back(
          {Notice::Level::kInfo, absl::StrCat(given->origin, "=", given->text,
                                              " is not used: it is what ddlaunch tune proposes")});
    }
  }
  return absl::OkStatus();
}

absl::Status ReadWorlds(const Arguments& arguments, TuneConfig& config) {
  DDL_ASSIGN_OR_RETURN(const auto worlds, ReadFlag(arguments, FlagId::kWorld, ParseWorlds));
  DDL_ASSIGN_OR_RETURN(const auto nodes, ReadFlag(arguments, FlagId::kNnodes, ParseNodeRange));
  const std::int64_t world = std::int64_t{config.nproc} * nodes.value_or(NodeRange{}).max;
  if (worlds.has_value()) {
    config.worlds = *worlds;
  } else if (world > 1) {
    config.worlds = {1, world};
  } else {
    config.worlds = {1, 2, 4, 8};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParseResult> ParseTuneCommand(const std::vector<std::string>& args,
                                             const Surroundings& surroundings) {
  DDL_ASSIGN_OR_RETURN(const Arguments arguments,
                       ScanArguments(args, surroundings.environment, Command::kTune));
  if (arguments.Find(FlagId::kHelp) != nullptr) {
    return PrintAndExit{HelpText(Command::kTune)};
  }
  if (arguments.Find(FlagId::kVersion) != nullptr) {
    return PrintAndExit{VersionText()};
  }
  TuneCommand command;
  TuneConfig& config = command.config;
  // What a trial would refuse is refused here, before the first.
  Arguments of_launch = arguments;
  for (const auto& [id, value] : arguments.values) {
    if (!HoldsForTrials(id) && id != FlagId::kNprocPerNode) {
      of_launch.values.erase(id);
    }
  }
  DDL_ASSIGN_OR_RETURN(LaunchCommand launch, ReadLaunch(of_launch, surroundings));
  command.notices = std::move(launch.notices);
  config.nproc = launch.config.nproc;
  config.shutdown_timeout = launch.config.shutdown_timeout;
  config.oom_exit_codes = launch.config.oom_exit_codes;
  config.verbose = launch.config.verbose;
  DDL_ASSIGN_OR_RETURN(const std::optional<bool> quiet,
                       ReadFlag(arguments, FlagId::kQuiet, ParseBool));
  config.quiet = quiet.value_or(false);
  config.program = {*arguments.program};
  config.program.insert(config.program.end(), arguments.program_args.begin(),
                        arguments.program_args.end());
  DDL_RETURN_IF_ERROR(SplitFlags(arguments, config));
  DDL_RETURN_IF_ERROR(ReadTrialFlags(arguments, config));
  DDL_RETURN_IF_ERROR(ReadBounds(arguments, config, command.notices));
  DDL_RETURN_IF_ERROR(AddRate(config));
  DDL_RETURN_IF_ERROR(ReadWorlds(arguments, config));
  if (config.check_scaling && config.nproc == 1) {
    return absl::InvalidArgumentError(
        "--check-scaling compares one worker with --nproc-per-node of them; give more than 1");
  }
  return command;
}

}  // namespace ddl::cli
