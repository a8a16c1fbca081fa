// See the header. Without -r, -t or --log-dir there is one private directory
// with the error files alone: a job of /bin/true makes one directory, not nine.
#include "launcher/logs/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "agent/base/errno_text.h"
#include "agent/base/ids.h"
#include "agent/base/status_macros.h"

namespace ddl {
namespace {

constexpr mode_t kDirectoryMode = 0777;  // as the umask allows: logs are shared
constexpr mode_t kFileMode = 0666;

bool DiskFull(int error) {
  return error == ENOSPC || error == EDQUOT;
}

bool AnyFile(const StreamMap& streams) {
  return streams.all != kNoStream ||
         std::any_of(streams.by_local_rank.begin(), streams.by_local_rank.end(),
                     [](const auto& entry) { return entry.second != kNoStream; });
}

// A job id may hold anything; a directory's name may not.
std::string FileName(const std::string& job_id) {
  constexpr std::size_t kMaxBytes = 128;
  std::string name = job_id.substr(0, kMaxBytes);
  for (char& c : name) {
    const bool harmless = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
    c = harmless ? c : '_';
  }
  return name;
}

// Where temporary directories can be made, as Python's tempfile looks for it: a
// TMPDIR that is gone or closed is no reason to fail.
std::string TemporaryRoot() {
  const char* const given = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): set by nobody
  std::string first = given != nullptr && *given != '\0' ? given : "/tmp";
  std::error_code error;
  for (const std::string& root : {first, std::string("/tmp"), std::string("/var/tmp"),
                                  std::filesystem::current_path(error).string()}) {
    if (::access(root.c_str(), W_OK | X_OK) == 0 && std::filesystem::is_directory(root, error)) {
      return root;
    }
  }
  return first;
}

absl::Status DirectoryError(const std::string& path, int error) {
  const std::string text = ErrnoText("cannot make the log directory " + path, error);
  switch (error) {
    case ENOTDIR:
    case EEXIST:
      return absl::InvalidArgumentError(text + "; --log-dir must name a directory, not a file");
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text + "; choose another --log-dir");
    default:
      return absl::FailedPreconditionError(text + "; choose another --log-dir");
  }
}

// Makes `path` and what is above it; 0 or an errno.
int MakeDirectories(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
      // An existing directory above may answer EROFS or EACCES first.
      const int error = errno;
      struct stat info {};
      if (::stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        return error;
      }
    }
    if (end == std::string::npos) {
      break;
    }
  }
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

}  // namespace

absl::Status LogFiles::MakeJobDirectory(const std::string& job_id) {
  const bool files_wanted = AnyFile(config_.redirects) || AnyFile(config_.tee) ||
                            !config_.duplicate_stdout_filters.empty() ||
                            !config_.duplicate_stderr_filters.empty();
  const bool off = config_.log_dir == kNoLogFiles;
  kept_ = !off && (files_wanted || !config_.log_dir.empty());
  if (kept_ && !config_.log_dir.empty()) {
    constexpr std::size_t kRandomDigits = 8;
    // Absolute: the error file's path must hold wherever the worker goes.
    std::error_code error_code;
    const std::string root = std::filesystem::absolute(config_.log_dir, error_code).string();
    job_directory_ = root + "/" + FileName(job_id) + "_" + NewRandomId().substr(0, kRandomDigits);
    const int error = MakeDirectories(job_directory_);
    if (error == 0) {
      return absl::OkStatus();
    }
    if (!DiskFull(error)) {
      return DirectoryError(config_.log_dir, error);
    }
    warnings_.push_back(ErrnoText("cannot make the log directory " + job_directory_, error) +
                        "; there will be no log files; the workers go on");
    kept_ = false;
  }
  const std::string temporary_root = TemporaryRoot();
  std::string pattern = temporary_root + "/ddlaunch_" + (kept_ ? FileName(job_id) : "") + "XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    const int error = errno;
    if (DiskFull(error)) {
      warnings_.push_back(ErrnoText("cannot make a directory in " + temporary_root, error) +
                          "; there will be no log or error files; the workers go on");
      kept_ = false;
      job_directory_ = temporary_root + "/ddlaunch_" + NewRandomId();
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        ErrnoText("cannot make a directory in " + temporary_root, error) +
        "; set TMPDIR or --log-dir to a directory that can be written");
  }
  job_directory_ = pattern;
  temporary_directory_ = kept_ ? "" : pattern;
  return absl::OkStatus();
}

absl::Status LogFiles::StartAttempt(const std::string& job_id, std::int32_t restart_count,
                                    std::int64_t round) {
  if (job_directory_.empty()) {
    DDL_RETURN_IF_ERROR(MakeJobDirectory(job_id));
  }
  if (!kept_) {
    attempt_directory_ = job_directory_ + "/round_" + std::to_string(round);
    return absl::OkStatus();
  }
  attempt_directory_ = job_directory_ + "/attempt_" + std::to_string(restart_count);
  if (::access(attempt_directory_.c_str(), F_OK) == 0) {
    attempt_directory_ += "_round_" + std::to_string(round);
  }
  DDL_ASSIGN_OR_RETURN(filtered_stdout_,
                       OpenFiltered("filtered_stdout.log", config_.duplicate_stdout_filters));
  DDL_ASSIGN_OR_RETURN(filtered_stderr_,
                       OpenFiltered("filtered_stderr.log", config_.duplicate_stderr_filters));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<FilteredFile>> LogFiles::OpenFiltered(
    const std::string& name, const std::vector<std::string>& filters) {
  if (filters.empty()) {
    return nullptr;
  }
  if (const int error = MakeDirectories(attempt_directory_); error != 0) {
    return DiskFull(error) ? absl::StatusOr<std::shared_ptr<FilteredFile>>(nullptr)
                           : DirectoryError(attempt_directory_, error);
  }
  auto file = std::make_shared<FilteredFile>();
  file->path = attempt_directory_ + "/" + name;
  file->filters = filters;
  DDL_ASSIGN_OR_RETURN(file->fd, OpenOne(file->path));
  return file;
}

absl::StatusOr<WorkerFiles> LogFiles::Open(std::int32_t local_rank) {
  WorkerFiles files;
  const std::string rank = std::to_string(local_rank);
  if (!kept_) {
    files.error_file = attempt_directory_ + "_rank_" + rank + "_error.json";
    return files;
  }
  files.filtered_stdout = filtered_stdout_;
  files.filtered_stderr = filtered_stderr_;
  const std::string directory = attempt_directory_ + "/" + rank;
  files.error_file = directory + "/error.json";
  if (const int error = MakeDirectories(directory); error != 0) {
    if (!DiskFull(error)) {
      return DirectoryError(directory, error);
    }
    warnings_.push_back(ErrnoText("cannot make the log directory " + directory, error) +
                        "; the worker runs without log files");
    return files;
  }
  const unsigned streams =
      unsigned{config_.redirects.of(local_rank)} | unsigned{config_.tee.of(local_rank)};
  if ((streams & kStdout) != 0) {
    files.stdout_path = directory + "/stdout.log";
    DDL_ASSIGN_OR_RETURN(files.stdout_file, OpenOne(files.stdout_path));
  }
  if ((streams & kStderr) != 0) {
    files.stderr_path = directory + "/stderr.log";
    DDL_ASSIGN_OR_RETURN(files.stderr_file, OpenOne(files.stderr_path));
  }
  return files;
}

absl::StatusOr<UniqueFd> LogFiles::OpenOne(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kFileMode));
  if (fd.valid()) {
    return fd;
  }
  const int error = errno;
  const std::string text = ErrnoText("cannot open the log file " + path, error);
  if (DiskFull(error)) {
    warnings_.push_back(text + "; the workers run without it");
    return fd;
  }
  if (error == EMFILE || error == ENFILE) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::FailedPreconditionError(text);
}

std::vector<std::string> LogFiles::TakeWarnings() {
  return std::exchange(warnings_, {});
}

}  // namespace ddl
