// Where the workers' files are: log_dir/<job id>_<random>/attempt_<n>/<local
// rank>/{stdout.log,stderr.log,error.json}, and beside the local ranks
// filtered_stdout.log and filtered_stderr.log. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_LOGS_LOG_FILES_H_
#define DDLAUNCH_LAUNCHER_LOGS_LOG_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"
#include "launcher/launch_config.h"
#include "launcher/logs/filtered_lines.h"

namespace ddl {

// As --log-dir: no log files at all.
inline constexpr std::string_view kNoLogFiles = "/dev/null";

struct WorkerFiles {
  UniqueFd stdout_file;  // invalid: this stream has no file
  UniqueFd stderr_file;
  std::string stdout_path;
  std::string stderr_path;
  // Shared by all workers of the attempt; null: nothing is filtered.
  std::shared_ptr<FilteredFile> filtered_stdout;
  std::shared_ptr<FilteredFile> filtered_stderr;
  std::string error_file;  // always a path that the worker may write
};

class LogFiles {
 public:
  // `config` must outlive this.
  explicit LogFiles(const LaunchConfig& config) : config_(config) {}

  // Makes the directories for the workers of one attempt. A round that follows
  // a mere change of membership has the same restart count; it gets a directory
  // of its own, so no log is ever overwritten.
  // Errors: INVALID_ARGUMENT, --log-dir is no directory; PERMISSION_DENIED and
  // others as mkdir(2) says. A full disk is none: it is a warning, and there
  // are no files then.
  absl::Status StartAttempt(const std::string& job_id, std::int32_t restart_count,
                            std::int64_t round);
  absl::StatusOr<WorkerFiles> Open(std::int32_t local_rank);

  // This job's directory, for the user to be told of; empty: no files are kept.
  [[nodiscard]] std::string kept_directory() const { return kept_ ? job_directory_ : ""; }
  // The private one for error files that nobody asked to keep, to be removed at
  // the end; empty: there is none.
  [[nodiscard]] const std::string& temporary_directory() const { return temporary_directory_; }
  // What the user should know, since the last call.
  std::vector<std::string> TakeWarnings();

 private:
  absl::Status MakeJobDirectory(const std::string& job_id);
  absl::StatusOr<UniqueFd> OpenOne(const std::string& path);
  absl::StatusOr<std::shared_ptr<FilteredFile>> OpenFiltered(
      const std::string& name, const std::vector<std::string>& filters);

  const LaunchConfig& config_;
  bool kept_ = false;
  std::string job_directory_;
  std::string attempt_directory_;
  std::shared_ptr<FilteredFile> filtered_stdout_;  // of this attempt
  std::shared_ptr<FilteredFile> filtered_stderr_;
  std::string temporary_directory_;  // made by us, and nobody else's
  std::vector<std::string> warnings_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_LOG_FILES_H_
