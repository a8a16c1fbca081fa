// The NCCL backend: collectives over this rank's CUDA device. A library of its
// own, ddlaunch::backend_nccl, there only where NCCL was found at build time, so
// that programs without it need neither CUDA nor NCCL to start.
//
// Device `local_rank` modulo the node's devices is used, whatever device the calling
// thread has chosen; that choice is put back afterwards, except on a thread whose
// device the process does not use (putting it back would make a CUDA context there).
// Operations on host memory (those of Backend) are staged through device memory; those
// on device memory are not. All of them return when the result is there, when a peer is
// found dead, or at the timeout; see Backend for the errors, and out_of_memory.h for
// that of the staging memory. No CUDA error is left in the thread's last error.
//
// DataParallel (data_parallel.h) keeps parameters and gradients in host memory and uses
// the operations on host memory only. A program whose gradients are on the device sums
// them itself with AllReduceSumOnDevice, weighted as data_parallel.h says.
//
// After an error NCCL is made to stop what this rank runs on the device, within the
// timeout and at most 30 s; where it does not, the text of the error says so, memory
// that was given to the operation may be in use until the process ends, and Reconnect
// returns the error again: exit.
//
// Reconnect: with an NCCL that has ncclCommRevoke (2.28.9 has) the ranks stop, meet, and only
// then free what kernels of other ranks of the node may read. With an older NCCL each
// rank frees it as soon as it is interrupted, and a rank whose kernel is in the middle
// of an operation then may fail with an illegal access. A rank that waits in an
// operation while its peers reconnect is set free for certain by Interrupt() only.
//
// What was tried: the collectives of a world of one need a GPU for their test; errors,
// hangs and Reconnect are tested over a fake CUDA and NCCL, and have not been run on
// GPUs.
//
// Thread safety: one thread at a time, except for Interrupt().
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
// peer or the network fails; DEADLINE_EXCEEDED, a peer did not come in time;
// RESOURCE_EXHAUSTED (IsOutOfMemory), the device has too little memory for NCCL.
absl::StatusOr<std::unique_ptr<NcclBackend>> CreateNcclBackend(const Context& context,
                                                               const BackendOptions& options = {});

}  // namespace ddl

#endif  // DDL_NCCL_BACKEND_H_
