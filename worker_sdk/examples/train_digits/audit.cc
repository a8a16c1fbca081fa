// Writes the audit's lines.
#include "worker_sdk/examples/train_digits/audit.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace ddl::digits {

absl::StatusOr<Audit> Audit::Open(const std::string& directory, int rank, std::int64_t round) {
  Audit audit;
  if (directory.empty()) {
    return audit;
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // opening says what is wrong
  audit.path_ = directory + "/rank-" + std::to_string(rank) + ".jsonl";
  audit.tail_ = ", \"rank\": " + std::to_string(rank) + ", \"round\": " + std::to_string(round);
  audit.file_.reset(std::fopen(audit.path_.c_str(), "ae"));
  if (audit.file_ == nullptr) {
    return absl::ErrnoToStatus(errno, "cannot write the audit " + audit.path_);
  }
  return audit;
}

absl::Status Audit::Write(std::int64_t epoch, std::int64_t step,
                          std::span<const std::int64_t> ids) {
  if (file_ == nullptr) {
    return absl::OkStatus();
  }
  std::string line = "{\"epoch\": " + std::to_string(epoch) +
                     ", \"step\": " + std::to_string(step) + tail_ + ", \"ids\": [";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    line += (i == 0 ? "" : ", ") + std::to_string(ids[i]);
  }
  line += "]}\n";
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    return absl::ErrnoToStatus(errno, "cannot write the audit " + path_);
  }
  return absl::OkStatus();
}

}  // namespace ddl::digits
