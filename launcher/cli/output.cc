// The flags of output: see output.h.
#include "launcher/cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/values.h"
#include "launcher/logs/log_files.h"
#include "launcher/logs/prefix_template.h"

namespace ddl::cli {
namespace {

absl::StatusOr<std::string> ParsePrefix(std::string_view text) {
  DDL_RETURN_IF_ERROR(CheckPrefixTemplate(text));
  return std::string(text);
}

absl::StatusOr<bool> ParseEventLogHandler(std::string_view text) {
  if (text != "null" && text != "console") {
    return absl::InvalidArgumentError("must be null (no events) or console");
  }
  return text == "console";
}

absl::Status ApplyLogDir(const Arguments& arguments, const std::string& cwd, LaunchConfig& config) {
  const RawValue* const raw = arguments.Find(FlagId::kLogDir);
  if (raw == nullptr || raw->text.empty()) {
    return absl::OkStatus();
  }
  config.log_dir = (std::filesystem::path(cwd) / raw->text).string();
  std::error_code error;
  const bool is_file = std::filesystem::exists(config.log_dir, error) &&
                       !std::filesystem::is_directory(config.log_dir, error);
  if (is_file && config.log_dir != kNoLogFiles) {
    return BadValue(*raw, "a file is there; give a directory, or /dev/null for no files");
  }
  return absl::OkStatus();
}

// Nodes may have different numbers of workers and yet the same command, so this
// is no error.
void NoticeRanksElsewhere(const StreamMap& map, const char* flag, std::int32_t nproc,
                          Notices& notices) {
  if (map.by_local_rank.empty() || map.by_local_rank.rbegin()->first < nproc) {
    return;
  }
  notices.push_back(
      {Notice::Level::kWarning,
       absl::StrCat(flag, " names local rank ", map.by_local_rank.rbegin()->first,
                    "; this node has ", nproc,
                    nproc == 1 ? " worker, local rank 0"
                               : absl::StrCat(" workers, local ranks 0 to ", nproc - 1))});
}

}  // namespace

absl::Status ApplyOutputFlags(const Arguments& arguments, const std::string& cwd,
                              LaunchConfig& config, Notices& notices) {
  DDL_RETURN_IF_ERROR(ApplyLogDir(arguments, cwd, config));
  DDL_ASSIGN_OR_RETURN(const std::optional<StreamMap> redirects,
                       ReadFlag(arguments, FlagId::kRedirects, ParseStreamMap));
  DDL_ASSIGN_OR_RETURN(const std::optional<StreamMap> tee,
                       ReadFlag(arguments, FlagId::kTee, ParseStreamMap));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::set<std::int32_t>> filter,
                       ReadFlag(arguments, FlagId::kLocalRanksFilter, ParseRankSet));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> prefix,
                       ReadFlag(arguments, FlagId::kLogLinePrefixTemplate, ParsePrefix));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> stdout_filters,
                       ReadFlag(arguments, FlagId::kDuplicateStdoutFilters, ParseTexts));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> stderr_filters,
                       ReadFlag(arguments, FlagId::kDuplicateStderrFilters, ParseTexts));
  DDL_ASSIGN_OR_RETURN(const std::optional<bool> event_log,
                       ReadFlag(arguments, FlagId::kEventLogHandler, ParseEventLogHandler));
  DDL_ASSIGN_OR_RETURN(config.verbose, ReadSwitch(arguments, FlagId::kVerbose));
  DDL_ASSIGN_OR_RETURN(config.quiet, ReadSwitch(arguments, FlagId::kQuiet));
  config.redirects = redirects.value_or(config.redirects);
  config.tee = tee.value_or(config.tee);
  config.local_ranks_filter = filter.value_or(config.local_ranks_filter);
  config.log_line_prefix_template = prefix.value_or("");
  config.duplicate_stdout_filters = stdout_filters.value_or(std::vector<std::string>());
  config.duplicate_stderr_filters = stderr_filters.value_or(std::vector<std::string>());
  config.event_log = event_log.value_or(false);
  if (config.verbose && config.quiet) {
    return absl::InvalidArgumentError("--verbose and --quiet contradict each other");
  }
  if (filter.has_value() && *filter->begin() >= config.nproc) {
    notices.push_back({Notice::Level::kWarning,
                       absl::StrCat("--local-ranks-filter shows no worker of this node: its local "
                                    "ranks are 0 to ",
                                    config.nproc - 1)});
  }
  if (config.log_dir == kNoLogFiles) {
    // What would go to a file alone would be lost: the console has it.
    config.redirects = StreamMap();
  }
  NoticeRanksElsewhere(config.redirects, "--redirects", config.nproc, notices);
  NoticeRanksElsewhere(config.tee, "--tee", config.nproc, notices);
  const bool filters =
      !config.duplicate_stdout_filters.empty() || !config.duplicate_stderr_filters.empty();
  if (filters && config.log_dir == kNoLogFiles) {
    notices.push_back({Notice::Level::kWarning,
                       "--log-dir=/dev/null: no log files, so also no filtered_stdout.log and "
                       "filtered_stderr.log"});
  }
  return absl::OkStatus();
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
