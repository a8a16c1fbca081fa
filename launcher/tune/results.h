// The directory of --tune-dir: one tuning at a time writes there. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_TUNE_RESULTS_H_
#define DDLAUNCH_LAUNCHER_TUNE_RESULTS_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "agent/base/unique_fd.h"

namespace ddl::tune {

class Results {
 public:
  explicit Results(std::string directory) : directory_(std::move(directory)) {}

  // Makes the directory and those above it, and claims it for as long as this lives.
  // What an earlier tuning proposed is set aside, or it would be taken for the proposal
  // of this one. Errors: INTERNAL, it cannot be made or written, or is another's.
  absl::Status Open();

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string PathOf(std::string_view name) const;

  // The file anew; half of it is none. Errors: INTERNAL, with its path.
  [[nodiscard]] absl::Status Write(std::string_view name, std::string_view text) const;
  // At the file's end. Errors: as Write; a part may be there then.
  [[nodiscard]] absl::Status Append(std::string_view name, std::string_view text) const;
  void Remove(std::string_view name) const;

 private:
  std::string directory_;
  UniqueFd claim_;
};

// This user can write no byte more there.
[[nodiscard]] bool IsDiskFull(const std::string& directory);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_RESULTS_H_
