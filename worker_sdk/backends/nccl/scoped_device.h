// ScopedDevice: makes a CUDA device the calling thread's current one while it lives.
// CUDA keeps that choice for each thread; the program's own is not ours to change.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_SCOPED_DEVICE_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_SCOPED_DEVICE_H_

#include <cuda_runtime_api.h>

#include "worker_sdk/backends/nccl/primary_context.h"

namespace ddl::internal {

class ScopedDevice {
 public:
  explicit ScopedDevice(int device) : result_(cudaGetDevice(&former_)) {
    if (result_ == cudaSuccess && former_ != device) {
      result_ = cudaSetDevice(device);
      switched_ = result_ == cudaSuccess;
    }
  }
  // A thread that has never chosen a device has device 0. To switch back to one that
  // the process does not use would make a context there, from CUDA 12 on: some
  // hundred MB of device 0 for every rank of the node. So it is left out then.
  ~ScopedDevice() {
    if (switched_ && MayHavePrimaryContext(former_)) {
      cudaSetDevice(former_);
    }
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  [[nodiscard]] cudaError_t result() const { return result_; }

 private:
  int former_ = 0;
  bool switched_ = false;
  cudaError_t result_;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_SCOPED_DEVICE_H_
