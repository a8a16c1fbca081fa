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
#include "launcher/tune/proposal.h"

namespace ddl::cli {
namespace {

// What a trial gets as it was given. The others are of tune itself, or of the batch and
// the rate, which tune sets: a rule for the rate, or a warm-up, may be refused or
// diverge at batches that only a trial has.
bool HoldsForTrials(FlagId id) {
  switch (id) {
    case FlagId::kOomExitCodes:
    case FlagId::kTotalSamples:
    case FlagId::kEpochSamples:
    case FlagId::kAdamBeta1:
    case FlagId::kAdamBeta2:
    case FlagId::kAdamEps:
    case FlagId::kWorkerStore:
    case FlagId::kShutdownTimeout:
    case FlagId::kVerbose:
      return true;
    default:
      return Flag(id).group == FlagGroup::kProgram;
  }
}

// What the proposal repeats as it was given.
bool HoldsForProposal(FlagId id) {
  const FlagGroup group = Flag(id).group;
  return (group == FlagGroup::kPlan || group == FlagGroup::kRate) && id != FlagId::kWorld &&
         id != FlagId::kMaxMicroBatchSize;
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
  if (!config.plan.base_lr.has_value()) {
    return absl::OkStatus();
  }
  plan::Request request;
  request.base_lr = config.plan.base_lr;
  request.base_batch_size = config.plan.base_batch_size;
  request.lr_scaling = config.plan.lr_scaling;
  request.micro_batch_size = config.first_micro_batch_size;
  request.grad_accum_steps = 1;
  DDL_ASSIGN_OR_RETURN(const plan::Plan plan, plan::Solve(request, 1));
  config.launch_flags.push_back(
      absl::StrCat("--base-lr=", plan.learning_rate.value_or(*request.base_lr)));
  return absl::OkStatus();
}

// Some micro-batch has a plan; else what was asked for cannot be, whatever the trials
// show, and is refused before the first.
absl::Status CheckProposal(const TuneConfig& config) {
  absl::Status first;
  const std::int64_t most = config.max_micro_batch_size;
  for (std::int64_t micro = config.first_micro_batch_size;;
       micro = micro > most / 2 ? most : 2 * micro) {
    for (const std::int64_t world : {config.worlds.front(), config.worlds.back()}) {
      const absl::Status solved = plan::Solve(tune::ProposedRequest(config, micro), world).status();
      if (solved.ok()) {
        return absl::OkStatus();
      }
      first.Update(solved);
    }
    if (micro == most) {
      return first;
    }
  }
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

absl::Status ReadBounds(const Arguments& arguments, TuneConfig& config) {
  DDL_ASSIGN_OR_RETURN(config.plan, ReadPlanRequest(arguments));
  const plan::Request& plan = config.plan;
  config.first_micro_batch_size = plan.min_micro_batch_size.value_or(1);
  const auto bound_by = [&](FlagId id, std::optional<std::int64_t> value) {
    if (value.has_value() && *value < config.max_micro_batch_size) {
      config.max_micro_batch_size = *value;
      config.bounded_by = absl::StrCat(arguments.Find(id)->origin, "=", *value);
    }
  };
  bound_by(FlagId::kMaxMicroBatchSize, plan.max_micro_batch_size);
  bound_by(FlagId::kGlobalBatchSize, plan.global_batch_size);
  if (config.first_micro_batch_size > config.max_micro_batch_size) {
    return BadValue(*arguments.Find(FlagId::kMinMicroBatchSize),
                    absl::StrCat("is above ", config.bounded_by));
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
  DDL_RETURN_IF_ERROR(ReadBounds(arguments, config));
  DDL_RETURN_IF_ERROR(AddRate(config));
  DDL_RETURN_IF_ERROR(ReadWorlds(arguments, config));
  DDL_RETURN_IF_ERROR(CheckProposal(config));
  if (config.check_scaling && config.nproc == 1) {
    return absl::InvalidArgumentError(
        "--check-scaling compares one worker with --nproc-per-node of them; give more than 1");
  }
  return command;
}

}  // namespace ddl::cli
