// From raw flags to a LaunchConfig: see parse.h.
#include "launcher/cli/parse.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/coordinator.h"
#include "launcher/cli/devices.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/help.h"
#include "launcher/cli/meeting.h"
#include "launcher/cli/token.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

constexpr char kNoLogFiles[] = "/dev/null";

absl::StatusOr<std::string> ParseText(std::string_view text) {
  return std::string(text);
}

absl::StatusOr<bool> ReadSwitch(const Arguments& arguments, FlagId id) {
  DDL_ASSIGN_OR_RETURN(const std::optional<bool> on, ReadFlag(arguments, id, ParseBool));
  return on.value_or(false);
}

// ---- workers ------------------------------------------------------------------

// Turns cpu, gpu and auto into a number, and says which.
absl::StatusOr<std::int32_t> CountWorkers(const RawValue& raw, const NprocRequest& request,
                                          const Surroundings& surroundings, Notices& notices) {
  using Kind = NprocRequest::Kind;
  if (request.kind == Kind::kNumber) {
    return request.number;
  }
  const std::int32_t gpus =
      request.kind == Kind::kCpu ? 0 : CountGpus(surroundings.environment, surroundings.device_dir);
  if (request.kind == Kind::kGpu && gpus == 0) {
    return BadValue(raw, absl::StrCat("this node has no GPU (looked at CUDA_VISIBLE_DEVICES and ",
                                      surroundings.device_dir, "/nvidia*); use cpu or a number"));
  }
  const std::int32_t number = gpus > 0 ? gpus : CountCpus();
  notices.push_back(
      {Notice::Level::kInfo,
       absl::StrCat(raw.origin, "=", raw.text, ": ", number, number == 1 ? " worker" : " workers",
                    ", one for each ", gpus > 0 ? "GPU" : "CPU")});
  return number;
}

absl::Status ApplyWorkers(const Arguments& arguments, const Surroundings& surroundings,
                          LaunchConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const std::optional<NprocRequest> request,
                       ReadFlag(arguments, FlagId::kNprocPerNode, ParseNproc));
  if (!request.has_value()) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(config.nproc, CountWorkers(*arguments.Find(FlagId::kNprocPerNode), *request,
                                                  surroundings, notices));
  return absl::OkStatus();
}

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

// ---- supervision --------------------------------------------------------------

absl::StatusOr<std::string> ParseStartMethod(std::string_view text) {
  if (text != "spawn" && text != "fork" && text != "forkserver") {
    return absl::InvalidArgumentError("must be spawn, fork or forkserver");
  }
  return std::string(text);
}

absl::StatusOr<std::string> ParseRole(std::string_view text) {
  const bool one_line = text.find_first_of("\r\n") == std::string_view::npos;
  if (text.empty() || !one_line) {
    return absl::InvalidArgumentError("must be a name");
  }
  return std::string(text);
}

absl::Status ApplySupervision(const Arguments& arguments, LaunchConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> restarts,
                       ReadFlag(arguments, FlagId::kMaxRestarts, [](std::string_view text) {
                         return ParseInteger(text, 0, std::numeric_limits<std::int32_t>::max());
                       }));
  DDL_ASSIGN_OR_RETURN(const std::optional<Duration> shutdown,
                       ReadFlag(arguments, FlagId::kShutdownTimeout, [](std::string_view text) {
                         return ParseSeconds(text, Zero::kAllowed);
                       }));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> role,
                       ReadFlag(arguments, FlagId::kRole, ParseRole));
  config.max_restarts = static_cast<std::int32_t>(restarts.value_or(config.max_restarts));
  config.shutdown_timeout = shutdown.value_or(config.shutdown_timeout);
  config.role = role.value_or(config.role);

  DDL_RETURN_IF_ERROR(ReadFlag(arguments, FlagId::kMonitorInterval, [](std::string_view text) {
                        return ParseSeconds(text, Zero::kRefused);
                      }).status());
  DDL_RETURN_IF_ERROR(ReadFlag(arguments, FlagId::kStartMethod, ParseStartMethod).status());
  for (const FlagId id : {FlagId::kMonitorInterval, FlagId::kStartMethod}) {
    if (const RawValue* const raw = arguments.Find(id); raw != nullptr) {
      notices.push_back({Notice::Level::kDebug, absl::StrCat(raw->origin, " has no effect: ",
                                                             std::string(Flag(id).help))});
    }
  }
  return absl::OkStatus();
}

// ---- output -------------------------------------------------------------------

absl::Status ApplyLogDir(const Arguments& arguments, const Surroundings& surroundings,
                         LaunchConfig& config) {
  const RawValue* const raw = arguments.Find(FlagId::kLogDir);
  if (raw == nullptr || raw->text.empty()) {
    return absl::OkStatus();
  }
  config.log_dir = (std::filesystem::path(surroundings.places.cwd) / raw->text).string();
  std::error_code error;
  const bool is_file = std::filesystem::exists(config.log_dir, error) &&
                       !std::filesystem::is_directory(config.log_dir, error);
  if (is_file && config.log_dir != kNoLogFiles) {
    return BadValue(*raw, "a file is there; give a directory, or /dev/null for no files");
  }
  return absl::OkStatus();
}

absl::Status ApplyOutput(const Arguments& arguments, const Surroundings& surroundings,
                         LaunchConfig& config, Notices& notices) {
  DDL_RETURN_IF_ERROR(ApplyLogDir(arguments, surroundings, config));
  DDL_ASSIGN_OR_RETURN(const std::optional<StreamMap> redirects,
                       ReadFlag(arguments, FlagId::kRedirects, ParseStreamMap));
  DDL_ASSIGN_OR_RETURN(const std::optional<StreamMap> tee,
                       ReadFlag(arguments, FlagId::kTee, ParseStreamMap));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::set<std::int32_t>> filter,
                       ReadFlag(arguments, FlagId::kLocalRanksFilter, ParseRankSet));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> prefix,
                       ReadFlag(arguments, FlagId::kLogLinePrefixTemplate, ParseText));
  DDL_ASSIGN_OR_RETURN(config.verbose, ReadSwitch(arguments, FlagId::kVerbose));
  DDL_ASSIGN_OR_RETURN(config.quiet, ReadSwitch(arguments, FlagId::kQuiet));
  config.redirects = redirects.value_or(config.redirects);
  config.tee = tee.value_or(config.tee);
  config.local_ranks_filter = filter.value_or(config.local_ranks_filter);
  config.log_line_prefix_template = prefix.value_or("");
  if (config.verbose && config.quiet) {
    return absl::InvalidArgumentError("--verbose and --quiet contradict each other");
  }
  if (filter.has_value() && *filter->begin() >= config.nproc) {
    notices.push_back({Notice::Level::kWarning,
                       absl::StrCat("--local-ranks-filter shows no worker of this node: its local "
                                    "ranks are 0 to ",
                                    config.nproc - 1)});
  }
  return absl::OkStatus();
}

// ---- the plan -----------------------------------------------------------------

absl::StatusOr<std::int64_t> ParseCount(std::string_view text) {
  return ParseInteger(text, 1, std::numeric_limits<std::int64_t>::max());
}

absl::StatusOr<std::int64_t> ParseSteps(std::string_view text) {
  return ParseInteger(text, 0, std::numeric_limits<std::int64_t>::max());
}

absl::StatusOr<double> ParseRate(std::string_view text) {
  return ParseNumber(text, Zero::kRefused);
}

absl::StatusOr<plan::LrScaling> ParseScaling(std::string_view text) {
  absl::StatusOr<plan::LrScaling> scaling = plan::ParseLrScaling(std::string(text));
  return scaling.ok() ? scaling : absl::InvalidArgumentError("must be none, linear or sqrt");
}

absl::Status ReadPlan(const Arguments& arguments, plan::Request& request) {
  DDL_ASSIGN_OR_RETURN(request.global_batch_size,
                       ReadFlag(arguments, FlagId::kGlobalBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.micro_batch_size,
                       ReadFlag(arguments, FlagId::kMicroBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.max_micro_batch_size,
                       ReadFlag(arguments, FlagId::kMaxMicroBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.grad_accum_steps,
                       ReadFlag(arguments, FlagId::kGradAccumSteps, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.base_lr, ReadFlag(arguments, FlagId::kBaseLr, ParseRate));
  DDL_ASSIGN_OR_RETURN(request.base_batch_size,
                       ReadFlag(arguments, FlagId::kBaseBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.lr_scaling, ReadFlag(arguments, FlagId::kLrScaling, ParseScaling));
  DDL_ASSIGN_OR_RETURN(request.warmup_steps, ReadFlag(arguments, FlagId::kWarmupSteps, ParseSteps));
  return absl::OkStatus();
}

// On one node the world is known here, so that numbers which do not multiply
// out are refused before anything starts. Only what the launcher decides alone
// is judged: without a batch number here the program's are used, and the rate
// may be the program's too.
absl::Status CheckPlan(const LaunchConfig& config) {
  plan::Request request = config.plan;
  const bool decides_batch = request.global_batch_size.has_value() ||
                             request.micro_batch_size.has_value() ||
                             request.grad_accum_steps.has_value();
  if (config.max_nodes != 1 || !decides_batch) {
    return absl::OkStatus();
  }
  if (!request.base_lr.has_value() || !request.base_batch_size.has_value()) {
    request.base_lr.reset();
    request.base_batch_size.reset();
    request.lr_scaling.reset();
  }
  return plan::Solve(request, config.nproc).status();
}

// ---- flags of later versions ----------------------------------------------------

bool IsTorchrunsDefault(const FlagSpec& flag, const RawValue& raw) {
  if (!flag.takes_value()) {
    const absl::StatusOr<bool> on = ParseBool(raw.text);
    return on.ok() && !*on;
  }
  const absl::StatusOr<double> number = ParseNumber(raw.text, Zero::kAllowed);
  const absl::StatusOr<double> usual = ParseNumber(flag.default_text, Zero::kAllowed);
  return raw.text == flag.default_text || (number.ok() && usual.ok() && *number == *usual);
}

absl::Status RefuseFlagsOfLaterVersions(const Arguments& arguments) {
  for (const FlagSpec& flag : AllFlags()) {
    const RawValue* const raw =
        flag.group == FlagGroup::kNotYet ? arguments.Find(flag.id) : nullptr;
    if (raw != nullptr && !IsTorchrunsDefault(flag, *raw)) {
      const std::string given =
          flag.takes_value() ? absl::StrCat(raw->origin, "=", raw->text) : raw->origin;
      return absl::InvalidArgumentError(absl::StrCat(
          given, ": this version of ddlaunch does not have it yet; leave it out",
          flag.default_text.empty() ? ""
                                    : absl::StrCat(" (or ", std::string(flag.default_text), ")")));
    }
  }
  return absl::OkStatus();
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
    if (flag.BelongsTo(Command::kLaunch)) {
      names.push_back(PetVariable(flag));
    }
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& variable : UnknownPetVariables(environment)) {
    const std::string nearest = NearestName(variable, views);
    notices.push_back(
        {Notice::Level::kWarning,
         absl::StrCat(variable, " is set and means nothing here",
                      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"))});
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

absl::StatusOr<ParseResult> ParseCommandLine(const std::vector<std::string>& args,
                                             const Surroundings& surroundings) {
  if (!args.empty() && args.front() == "coordinator") {
    return ParseCoordinatorCommand({args.begin() + 1, args.end()}, surroundings);
  }
  DDL_ASSIGN_OR_RETURN(const Arguments arguments,
                       ScanArguments(args, surroundings.environment, Command::kLaunch));
  if (arguments.Find(FlagId::kHelp) != nullptr) {
    return PrintAndExit{HelpText(Command::kLaunch)};
  }
  if (arguments.Find(FlagId::kVersion) != nullptr) {
    return PrintAndExit{VersionText()};
  }
  LaunchCommand command;
  LaunchConfig& config = command.config;
  DDL_RETURN_IF_ERROR(RefuseFlagsOfLaterVersions(arguments));
  DDL_RETURN_IF_ERROR(ApplyWorkers(arguments, surroundings, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplyMeetingFlags(arguments, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplyToken(arguments, surroundings, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplySupervision(arguments, config, command.notices));
  DDL_RETURN_IF_ERROR(ApplyOutput(arguments, surroundings, config, command.notices));
  DDL_RETURN_IF_ERROR(ReadPlan(arguments, config.plan));
  DDL_RETURN_IF_ERROR(CheckPlan(config));
  DDL_RETURN_IF_ERROR(ApplyProgram(arguments, surroundings, config, command.notices));
  WarnOfUnknownVariables(surroundings.environment, command.notices);
  return command;
}

absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Surroundings& surroundings) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return ParseCommandLine(args, surroundings);
}

absl::Status MakeLogDirectory(const LaunchConfig& config) {
  if (config.log_dir.empty() || config.log_dir == kNoLogFiles) {
    return absl::OkStatus();
  }
  std::error_code error;
  std::filesystem::create_directories(config.log_dir, error);
  const bool is_full = error == std::errc::no_space_on_device;
  if (!error && ::access(config.log_dir.c_str(), W_OK | X_OK) != 0) {
    error.assign(errno, std::generic_category());
  }
  if (error && !is_full) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--log-dir=", config.log_dir, ": no files can be made there: ", error.message()));
  }
  return absl::OkStatus();
}

}  // namespace ddl::cli
