// A checkpoint as bytes. Pure functions.
//
//   8 bytes   "DDLCKPT1"
//   8 bytes   length of the body
//   4 bytes   CRC-32 (zlib's) of the body
//   body      step; tensors, integers, reals: each a count, then name and value
//
// Numbers are little-endian; counts and lengths have 8 bytes.
#ifndef DDLAUNCH_WORKER_SDK_SRC_CHECKPOINT_FORMAT_H_
#define DDLAUNCH_WORKER_SDK_SRC_CHECKPOINT_FORMAT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ddl/checkpoint.h"

namespace ddl::internal {

std::string EncodeCheckpoint(const CheckpointState& state);

// DATA_LOSS: not a whole, undamaged checkpoint; the text says in what way.
absl::StatusOr<CheckpointState> DecodeCheckpoint(std::string_view bytes);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_CHECKPOINT_FORMAT_H_
