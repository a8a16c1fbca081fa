// DeviceBuffer: memory of the current CUDA device that grows and is freed at the end. Not
// thread safe.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_DEVICE_BUFFER_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_DEVICE_BUFFER_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ddl::internal {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { Free(); }

  // Room for `size` bytes; what was inside is lost when it grows.
  cudaError_t Reserve(std::size_t size) {
    if (size <= size_) {
      return cudaSuccess;
    }
    Free();
    const cudaError_t result = cudaMalloc(&data_, size);
    size_ = result == cudaSuccess ? size : 0;
    return result;
  }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void Free() {
    if (data_ != nullptr) {
      cudaFree(data_);
    }
    data_ = nullptr;
    size_ = 0;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_DEVICE_BUFFER_H_
