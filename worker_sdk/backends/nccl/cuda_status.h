// CUDA's results as statuses.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_CUDA_STATUS_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "ddl/out_of_memory.h"

namespace ddl::internal {

// `who` and what it was doing begin the text. OutOfMemory when the device's memory
// ran out, with what is known of it (`asked_bytes` 0: not known); else INTERNAL. The
// error is taken from the thread's last error, so that the program does not find it
// when it checks calls of its own.
inline absl::Status CudaStatus(cudaError_t result, const std::string& who,
                               std::int64_t asked_bytes = 0) {
  if (result == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();
  const std::string text = who + ": CUDA says " + cudaGetErrorString(result);
  if (result != cudaErrorMemoryAllocation) {
    return absl::InternalError(text);
  }
  MemoryUse use;
  use.asked_bytes = asked_bytes;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
    use.free_bytes = static_cast<std::int64_t>(free_bytes);
    use.total_bytes = static_cast<std::int64_t>(total_bytes);
  } else {
    cudaGetLastError();
  }
  return OutOfMemory(use, text);
}

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_CUDA_STATUS_H_
