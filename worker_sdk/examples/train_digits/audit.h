// The audit: which samples each counted optimizer step consumed, by rank.
//
// Each rank appends to its own file in the directory, rank-<rank>.jsonl, one line
// a step, whole, once the step counts:
//
//   {"epoch": 0, "step": 17, "rank": 2, "round": 1, "ids": [5, 6, 0]}
//
// Steps done again after a restart from a checkpoint are written again, in a later
// round: of each step the lines of its last round are the ones that count.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_AUDIT_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_AUDIT_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddl::digits {

// Not thread safe.
class Audit {
 public:
  // Makes the directory. An empty path writes nowhere.
  static absl::StatusOr<Audit> Open(const std::string& directory, int rank, std::int64_t round);

  // The line is handed to the system at once, so a kill loses none.
  absl::Status Write(std::int64_t epoch, std::int64_t step, std::span<const std::int64_t> ids);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::string tail_;                         // what is the same in each line
  std::unique_ptr<std::FILE, Closer> file_;  // null: nowhere
};

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_AUDIT_H_
