// The NCCL unique id of a round: made by rank 0's process, fetched by the rest.
//
// The 128 bytes are what ncclCommInitRank takes as its ncclUniqueId. No GPU is
// needed to agree on one. libnccl.so.2 is loaded at run time, by rank 0 only,
// so a program that does not call this needs no NCCL.
#ifndef DDL_NCCL_ID_H_
#define DDL_NCCL_ID_H_

#include <array>
#include <chrono>
#include <cstddef>

#include "absl/status/statusor.h"
#include "ddl/context.h"

namespace ddl {

inline constexpr std::size_t kNcclUniqueIdBytes = 128;
using NcclUniqueId = std::array<char, kNcclUniqueIdBytes>;

// Every rank must call it; a second call in a round agrees on a second id.
// Thread safe. Errors: UNAVAILABLE, rank 0 finds no NCCL library (every rank is
// told); DEADLINE_EXCEEDED, rank 0 did not publish in time; else Publish's and
// Fetch's.
absl::StatusOr<NcclUniqueId> AgreeNcclUniqueId(
    const Context& context, std::chrono::milliseconds timeout = std::chrono::minutes(2));

}  // namespace ddl

#endif  // DDL_NCCL_ID_H_
