// The NCCL backend: collectives over this rank's CUDA device. A library of its
// own, ddlaunch::backend_nccl, there only where NCCL was found at build time, so
// that programs without it need neither CUDA nor NCCL to start.
//
// Device `local_rank` modulo the node's devices is used. Operations on host
// memory (those of Backend) are staged through device memory; those on device
// memory are not. All of them return when the result is there, when a peer is
// found dead, or at the timeout; see Backend for the errors.
//
// Thread safety: one thread at a time.
#ifndef DDL_NCCL_BACKEND_H_
#define DDL_NCCL_BACKEND_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/backend.h"
#include "ddl/context.h"

namespace ddl {

class NcclBackend : public Backend {
 public:
  // As AllReduceSum, in place on `count` floats of device memory. Work that the
  // program queued on its own streams must be done before.
  virtual absl::Status AllReduceSumOnDevice(float* device_values, std::size_t count) = 0;
  // As Broadcast, on `size` bytes of device memory.
  virtual absl::Status BroadcastOnDevice(void* device_bytes, std::size_t size, int root) = 0;
};

// Connects all ranks; every rank must call it.
// Errors: FAILED_PRECONDITION, this node has no CUDA device, or two ranks of a
// node use the same one (both are named, before NCCL starts); UNAVAILABLE, a
// peer or the network fails; DEADLINE_EXCEEDED, a peer did not come in time.
absl::StatusOr<std::unique_ptr<NcclBackend>> CreateNcclBackend(const Context& context,
                                                               const BackendOptions& options = {});

}  // namespace ddl

#endif  // DDL_NCCL_BACKEND_H_
