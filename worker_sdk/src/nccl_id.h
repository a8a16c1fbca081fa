// The NCCL unique id under a key that the caller names: for a backend that
// connects anew and has no Context any more.
#ifndef DDLAUNCH_WORKER_SDK_SRC_NCCL_ID_H_
#define DDLAUNCH_WORKER_SDK_SRC_NCCL_ID_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "ddl/nccl_id.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// See ddl::AgreeNcclUniqueId. Every rank must call it with the same key.
absl::StatusOr<NcclUniqueId> AgreeNcclUniqueId(Gateway& gateway, const std::string& key, int rank,
                                               std::chrono::milliseconds timeout);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_NCCL_ID_H_
