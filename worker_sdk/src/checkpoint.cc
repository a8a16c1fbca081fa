// Checkpoint files: atomic writing, pruning, and loading the newest whole one.
#include "ddl/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/file_io.h"
#include "agent/base/ids.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"
#include "worker_sdk/src/checkpoint_format.h"

namespace ddl {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".ckpt";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::size_t kStepDigits = 20;

absl::Status ErrnoStatus(const std::string& doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, "checkpoint: cannot " + doing + " " + path);
}

// Zero-padded: the order of names is the order of steps.
std::string FileName(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kPrefix) + std::string(kStepDigits - digits.size(), '0') + digits +
         std::string(kSuffix);
}

bool IsCheckpoint(const std::string& name) {
  return name.size() == kPrefix.size() + kStepDigits + kSuffix.size() &&
         name.compare(0, kPrefix.size(), kPrefix) == 0 &&
         name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0;
}

bool IsTemporary(const std::string& name) {
  return name.size() > kTemporarySuffix.size() && name.compare(0, kPrefix.size(), kPrefix) == 0 &&
         name.compare(name.size() - kTemporarySuffix.size(), kTemporarySuffix.size(),
                      kTemporarySuffix) == 0;
}

// The names in a directory, newest checkpoint first; none when it is not there.
absl::StatusOr<std::vector<std::string>> List(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    return names;
  }
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), "checkpoint: cannot list " + path);
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

// A new file with these bytes, flushed to the disk.
absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  constexpr mode_t kMode = 0644;
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!fd.valid()) {
    return ErrnoStatus("create", path);
  }
  if (const int error = WriteAll(fd.get(), bytes); error != 0) {
    return absl::ErrnoToStatus(error, "checkpoint: cannot write " + path);
  }
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus("flush", path);
}

// Makes a rename or a new name in the directory durable.
absl::Status FlushDirectory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoStatus("open", path);
  }
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus("flush", path);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    return ErrnoStatus("open", path);
  }
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno != EINTR) {
      return ErrnoStatus("read", path);
    }
    if (got == 0) {
      break;  // it became shorter; the decoder will say so
    }
    have += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  bytes.resize(have);
  return bytes;
}

// The head of what RestoreOnAllRanks sends: a status code, then so many bytes
// of checkpoint (0) or of the error's text.
struct RestoreHead {
  std::int64_t code = 0;
  std::uint64_t length = 0;
};

}  // namespace

CheckpointDirectory::CheckpointDirectory(std::string path, int keep)
    : path_(std::move(path)), keep_(keep) {
  DDL_CHECK(keep_ >= 1);
}

absl::Status CheckpointDirectory::Save(const CheckpointState& state) const {
  if (state.step < 0) {
    return absl::InvalidArgumentError("checkpoint: step " + std::to_string(state.step) +
                                      " is negative");
  }
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), "checkpoint: cannot make " + path_);
  }
  const std::string name = FileName(state.step);
  const std::string temporary =
      path_ + "/" + name + "." + NewRandomId() + std::string(kTemporarySuffix);
  absl::Status written = WriteFile(temporary, internal::EncodeCheckpoint(state));
  if (written.ok() && ::rename(temporary.c_str(), (path_ + "/" + name).c_str()) != 0) {
    written = ErrnoStatus("rename", temporary);
  }
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  DDL_RETURN_IF_ERROR(FlushDirectory(path_));

  // Old checkpoints go only now that the new one is safe; so do the temporary
  // files of a writer that was killed (there is one writer: us). A file that
  // claims a later step is not ours to count: it is damaged, or we would have
  // resumed from it.
  DDL_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(path_));
  int kept = 0;
  for (const std::string& old : names) {
    if (IsTemporary(old) || (IsCheckpoint(old) && old <= name && ++kept > keep_)) {
      ::unlink((path_ + "/" + old).c_str());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CheckpointState>> CheckpointDirectory::LoadLatest(
    std::vector<std::string>* warnings) const {
  DDL_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(path_));
  for (const std::string& name : names) {
    if (!IsCheckpoint(name)) {
      continue;
    }
    const std::string file = path_ + "/" + name;
    absl::StatusOr<std::string> bytes = ReadFile(file);
    absl::StatusOr<CheckpointState> state =
        bytes.ok() ? internal::DecodeCheckpoint(*bytes) : bytes.status();
    if (state.ok()) {
      return std::optional<CheckpointState>(*std::move(state));
    }
    if (warnings != nullptr) {
      warnings->push_back("checkpoint " + file +
                          " is passed over: " + std::string(state.status().message()));
    }
  }
  return std::optional<CheckpointState>();
}

absl::StatusOr<std::optional<CheckpointState>> RestoreOnAllRanks(
    Backend& backend, const CheckpointDirectory& directory) {
  RestoreHead head;
  std::string bytes;
  if (backend.rank() == 0) {
    std::vector<std::string> warnings;
    const absl::StatusOr<std::optional<CheckpointState>> loaded = directory.LoadLatest(&warnings);
    for (const std::string& warning : warnings) {
      std::fprintf(stderr, "ddl: warning: %s\n", warning.c_str());
    }
    if (!loaded.ok()) {
      head.code = static_cast<std::int64_t>(loaded.status().code());
      bytes = std::string(loaded.status().message());
    } else if (loaded->has_value()) {
      bytes = internal::EncodeCheckpoint(**loaded);
    }
    head.length = bytes.size();
  }
  DDL_RETURN_IF_ERROR(backend.Broadcast(std::as_writable_bytes(std::span(&head, 1)), 0));
  bytes.resize(head.length);
  DDL_RETURN_IF_ERROR(
      backend.Broadcast(std::as_writable_bytes(std::span(bytes.data(), bytes.size())), 0));
  if (head.code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(head.code), bytes);
  }
  if (bytes.empty()) {
    return std::optional<CheckpointState>();
  }
  DDL_ASSIGN_OR_RETURN(CheckpointState state, internal::DecodeCheckpoint(bytes));
  return std::optional<CheckpointState>(std::move(state));
}

}  // namespace ddl
