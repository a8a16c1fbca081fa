// From raw flags to a CoordinatorConfig.
#include "launcher/cli/coordinator.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/help.h"
#include "launcher/cli/rdzv_conf.h"
#include "launcher/cli/token.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

absl::Status ApplyListen(const Arguments& arguments, CoordinatorConfig& config) {
  DDL_ASSIGN_OR_RETURN(const std::optional<Endpoint> given,
                       ReadFlag(arguments, FlagId::kListen,
                                [](std::string_view text) { return ParseListen(text); }));
  const Endpoint listen = given.value_or(Endpoint{kEveryAddress, kDefaultListenPort});
  config.listen_host = listen.host;
  config.listen_port = listen.port;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParseResult> ParseCoordinatorCommand(const std::vector<std::string>& args,
                                                    const Surroundings& surroundings) {
  DDL_ASSIGN_OR_RETURN(const Arguments arguments,
                       ScanArguments(args, surroundings.environment, Command::kCoordinator));
  if (arguments.Find(FlagId::kHelp) != nullptr) {
    return PrintAndExit{HelpText(Command::kCoordinator)};
  }
  if (arguments.program.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(*arguments.program,
                     ": ddlaunch coordinator runs no program (one that is called "
                     "coordinator is run as ./coordinator)"));
  }
  CoordinatorCommand command;
  CoordinatorConfig& config = command.config;
  DDL_RETURN_IF_ERROR(ApplyListen(arguments, config));
  DDL_ASSIGN_OR_RETURN(const std::optional<RdzvConf> conf,
                       ReadFlag(arguments, FlagId::kRdzvConf, ParseCoordinatorConf));
  if (conf.has_value()) {
    const Heartbeats heartbeats = conf->heartbeats.value_or(Heartbeats{});
    config.heartbeat_interval = heartbeats.interval;
    config.heartbeat_timeout = heartbeats.timeout;
    for (const std::string& remark : conf->remarks) {
      command.notices.push_back({Notice::Level::kDebug, remark});
    }
  }
  DDL_ASSIGN_OR_RETURN(config.token, ReadToken(arguments, surroundings.environment,
                                               surroundings.places.cwd, command.notices));
  DDL_ASSIGN_OR_RETURN(const std::optional<bool> verbose,
                       ReadFlag(arguments, FlagId::kVerbose, ParseBool));
  config.verbose = verbose.value_or(false);
  return command;
}

}  // namespace ddl::cli
