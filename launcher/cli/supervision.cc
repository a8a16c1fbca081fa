// The flags of failure and stop: see supervision.h.
#include "launcher/cli/supervision.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

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

}  // namespace

absl::Status ApplySupervisionFlags(const Arguments& arguments, LaunchConfig& config,
                                   Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> restarts,
                       ReadFlag(arguments, FlagId::kMaxRestarts, [](std::string_view text) {
                         return ParseInteger(text, 0, std::numeric_limits<std::int32_t>::max());
                       }));
  DDL_ASSIGN_OR_RETURN(const std::optional<Duration> shutdown,
                       ReadFlag(arguments, FlagId::kShutdownTimeout, [](std::string_view text) {
                         return ParseSeconds(text, Zero::kAllowed);
                       }));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::vector<int>> signals,
                       ReadFlag(arguments, FlagId::kSignalsToHandle, ParseSignals));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> role,
                       ReadFlag(arguments, FlagId::kRole, ParseRole));
  config.max_restarts = static_cast<std::int32_t>(restarts.value_or(config.max_restarts));
  config.shutdown_timeout = shutdown.value_or(config.shutdown_timeout);
  config.stop_signals = signals.value_or(config.stop_signals);
  config.role = role.value_or(config.role);

  DDL_RETURN_IF_ERROR(ReadFlag(arguments, FlagId::kMonitorInterval, [](std::string_view text) {
                        return ParseSeconds(text, Zero::kRefused);
                      }).status());
  DDL_RETURN_IF_ERROR(ReadFlag(arguments, FlagId::kStartMethod, ParseStartMethod).status());
  DDL_RETURN_IF_ERROR(ReadFlag(arguments, FlagId::kExitBarrierTimeout, [](std::string_view text) {
                        return ParseSeconds(text, Zero::kAllowed);
                      }).status());
  for (const FlagId id :
       {FlagId::kMonitorInterval, FlagId::kStartMethod, FlagId::kExitBarrierTimeout}) {
    if (const RawValue* const raw = arguments.Find(id); raw != nullptr) {
      notices.push_back({Notice::Level::kDebug, absl::StrCat(raw->origin, " has no effect: ",
                                                             std::string(Flag(id).help))});
    }
  }
  return absl::OkStatus();
}

}  // namespace ddl::cli
