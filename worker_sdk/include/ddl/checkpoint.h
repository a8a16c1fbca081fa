// Checkpoints: the state of training in a directory, never torn.
//
// A checkpoint is one file, written under a unique temporary name, flushed to
// the disk (fsync of file and directory) and then renamed to
// "step-<20 digits>.ckpt". A kill at any moment leaves the older checkpoints as
// they were and at most a temporary file, which the next Save removes. Length
// and CRC-32 in the file's head show damage: such a file is never loaded, the
// next older one is.
//
// One process writes to a directory (rank 0); any may read. RestoreOnAllRanks
// lets rank 0 read and gives every rank the same bytes, so that all take the
// same decision, also when only rank 0 sees the directory.
//
// Thread safety: none; a CheckpointDirectory has no state but its path.
#ifndef DDL_CHECKPOINT_H_
#define DDL_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/backend.h"

namespace ddl {

// What is kept, by name. A plain value.
struct CheckpointState {
  std::int64_t step = 0;  // optimizer steps done; names the file
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> reals;
  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
};

class CheckpointDirectory {
 public:
  // Keeps the newest `keep` (at least 1) checkpoints. The directory is made by
  // the first Save.
  explicit CheckpointDirectory(std::string path, int keep = 3);

  // Returns when the checkpoint is on the disk. Writing a step again replaces
  // it. Errors: INVALID_ARGUMENT, a negative step; those of the file system,
  // with the path.
  absl::Status Save(const CheckpointState& state) const;

  // The newest complete checkpoint; nothing when there is none. Damaged files
  // are passed over, with a line each in `warnings` (may be null).
  // Errors: those of the file system. A directory that is not there is empty.
  [[nodiscard]] absl::StatusOr<std::optional<CheckpointState>> LoadLatest(
      std::vector<std::string>* warnings = nullptr) const;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int keep_;
};

// LoadLatest on rank 0, then the same result on every rank: state, nothing, or
// rank 0's error. Warnings go to stderr. Every rank must call it.
absl::StatusOr<std::optional<CheckpointState>> RestoreOnAllRanks(
    Backend& backend, const CheckpointDirectory& directory);

}  // namespace ddl

#endif  // DDL_CHECKPOINT_H_
