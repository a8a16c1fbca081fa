// From raw flags to a LaunchConfig: see parse.h.
#include "launcher/cli/parse.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/edit_distance.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/coordinator.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/help.h"
#include "launcher/cli/meeting.h"
#include "launcher/cli/output.h"
#include "launcher/cli/plan_command.h"
#include "launcher/cli/plan_flags.h"
#include "launcher/cli/supervision.h"
#include "launcher/cli/token.h"
#include "launcher/cli/tune.h"
#include "launcher/cli/values.h"
#include "launcher/cli/worker_flags.h"

namespace ddl::cli {
namespace {

// ---- the token ----------------------------------------------------------------

// With --standalone nobody else is met: it is not read, like all of --rdzv-*.
absl::Status ApplyToken(const Arguments& arguments, const Surroundings& surroundings,
                        LaunchConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const bool standalone, ReadSwitch(arguments, FlagId::kStandalone));
  if (standalone) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(config.rdzv_token, ReadToken(arguments, surroundings.environment,
                                                    surroundings.places.cwd, notices));
  return absl::OkStatus();
}

// ---- what cannot be ---------------------------------------------------------------

absl::Status RefuseLogsSpecs(const Arguments& arguments) {
  const RawValue* const raw = arguments.Find(FlagId::kLogsSpecs);
  return raw == nullptr || raw->text.empty()
             ? absl::OkStatus()
             : BadValue(*raw,
                        "a plug-in in Python cannot be loaded here; say where output goes by "
                        "--log-dir, --redirects, --tee, --local-ranks-filter, "
                        "--log-line-prefix-template and --duplicate-stdout-filters");
}

// ---- the program ----------------------------------------------------------------

absl::StatusOr<ProgramMode> ReadProgramMode(const Arguments& arguments) {
  struct Choice {
    FlagId id;
    ProgramMode mode;
  };
  constexpr std::array<Choice, 3> kChoices = {{{FlagId::kModule, ProgramMode::kModule},
                                               {FlagId::kNoPython, ProgramMode::kNoPython},
                                               {FlagId::kRunPath, ProgramMode::kRunPath}}};
  const Choice* chosen = nullptr;
  for (const Choice& choice : kChoices) {
    DDL_ASSIGN_OR_RETURN(const bool on, ReadSwitch(arguments, choice.id));
    if (on && chosen != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(arguments.Find(chosen->id)->origin, " and ",
                                                     arguments.Find(choice.id)->origin,
                                                     " contradict each other"));
    }
    chosen = on ? &choice : chosen;
  }
  return chosen == nullptr ? ProgramMode::kDetect : chosen->mode;
}

absl::Status ApplyProgram(const Arguments& arguments, const Surroundings& surroundings,
                          LaunchConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const ProgramMode mode, ReadProgramMode(arguments));
  if (!arguments.program.has_value() || arguments.program->empty()) {
    return absl::InvalidArgumentError(
        "no program given: ddlaunch [FLAG ...] PROGRAM [ARG ...]; see ddlaunch --help");
  }
  DDL_ASSIGN_OR_RETURN(ResolvedProgram program,
                       ResolveProgram(*arguments.program, arguments.program_args, mode,
                                      surroundings.places, surroundings.environment));
  config.program_name = *arguments.program;
  if (!program.python.empty()) {
    notices.push_back(
        {Notice::Level::kInfo, absl::StrCat(config.program_name, " runs by ", program.python)});
  }
  config.argv = std::move(program.argv);
  return absl::OkStatus();
}

void WarnOfUnknownVariables(const Environment& environment, Notices& notices) {
  std::vector<std::string> names;
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.BelongsTo(Command::kLaunch) && ReadsVariables(flag)) {
      names.push_back(PetVariable(flag));
    }
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& variable : UnknownPetVariables(environment)) {
    notices.push_back(
        {Notice::Level::kWarning, absl::StrCat(variable, " is set and means nothing here",
                                               DidYouMean(NearestNames(variable, views)))});
  }
}

}  // namespace

Surroundings SurroundingsOfThisProcess(const char* const* environ) {
  Surroundings surroundings;
  for (; environ != nullptr && *environ != nullptr; ++environ) {
    const std::string_view entry(*environ);
    const std::size_t equals = entry.find('=');
    if (equals != std::string_view::npos) {
      surroundings.environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }
  std::error_code error;
  surroundings.places.cwd = std::filesystem::current_path(error).string();
  surroundings.places.self_dir =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  return surroundings;
}

absl::StatusOr<LaunchCommand> ReadLaunch(const Arguments& arguments,
                                         const Surroundings& surroundings) {
  LaunchCommand command;
  LaunchConfig& config = command.config;
  DDL_RETURN_IF_ERROR(RefuseLogsSpecs(arguments));
  DDL_RETURN_IF_ERROR(ApplyWorkerFlags(arguments, surroundings, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplyMeetingFlags(arguments, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplyToken(arguments, surroundings, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplySupervisionFlags(arguments, config, command.notices));
  DDL_RETURN_IF_ERROR(
      ApplyOutputFlags(arguments, surroundings.places.cwd, config, command.notices));
  DDL_ASSIGN_OR_RETURN(config.plan, ReadPlanRequest(arguments));
  DDL_RETURN_IF_ERROR(CheckPlan(config));
  DDL_ASSIGN_OR_RETURN(auto oom_exit_codes,
                       ReadFlag(arguments, FlagId::kOomExitCodes, ParseExitCodes));
  config.oom_exit_codes = std::move(oom_exit_codes).value_or(std::set<std::int32_t>());
  DDL_RETURN_IF_ERROR(ApplyProgram(arguments, surroundings, config, command.notices));
  WarnOfUnknownVariables(surroundings.environment, command.notices);
  return command;
}

absl::StatusOr<ParseResult> ParseCommandLine(const std::vector<std::string>& args,
                                             const Surroundings& surroundings) {
  if (!args.empty() && args.front() == "coordinator") {
    return ParseCoordinatorCommand({args.begin() + 1, args.end()}, surroundings);
  }
  if (!args.empty() && args.front() == "plan") {
    return ParsePlanCommand({args.begin() + 1, args.end()}, surroundings);
  }
  if (!args.empty() && args.front() == "tune") {
    return ParseTuneCommand({args.begin() + 1, args.end()}, surroundings);
  }
  DDL_ASSIGN_OR_RETURN(const Arguments arguments,
                       ScanArguments(args, surroundings.environment, Command::kLaunch));
  if (args.empty()) {
    return absl::InvalidArgumentError(UsageText());
  }
  if (arguments.Find(FlagId::kHelp) != nullptr) {
    return PrintAndExit{HelpText(Command::kLaunch)};
  }
  if (arguments.Find(FlagId::kVersion) != nullptr) {
    return PrintAndExit{VersionText()};
  }
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> completion,
                       ReadFlag(arguments, FlagId::kPrintCompletion, CompletionScript));
  if (completion.has_value()) {
    return PrintAndExit{*completion};
  }
  return ReadLaunch(arguments, surroundings);
}

absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Surroundings& surroundings) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return ParseCommandLine(args, surroundings);
}

}  // namespace ddl::cli
