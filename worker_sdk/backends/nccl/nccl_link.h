// NcclLink: one communicator, with the stream and the memory that its operations use,
// and an end that cannot hang.
//
// What it takes to end one safely. ncclCommAbort frees memory that kernels of other
// ranks of the node may still read over NVLink or PCIe, which would be an illegal
// access there. A newer NCCL (2.28.9) has ncclCommRevoke, which stops what this rank runs
// and frees nothing. So: every rank stops, the ranks meet, every rank aborts. With an
// older NCCL, Stop can only abort.
//
// Both calls wait for the device, and are known to hang when it or a driver does. They
// run in a thread that is left behind after a bound; what it may still use is then kept
// until the process ends.
//
// Thread safety: one thread at a time.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_NCCL_LINK_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_NCCL_LINK_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "worker_sdk/backends/nccl/device_buffer.h"

namespace ddl::internal {

class NcclLink {
 public:
  // Of CUDA device `device`, which is the calling thread's current one in Open.
  explicit NcclLink(int device);
  // REQUIRES: Abort was called, or Open was not.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  cudaError_t MakeStream();
  // Begins to connect; ncclInProgress: see communicator()'s asynchronous error.
  ncclResult_t Open(int world_size, int rank, const ncclUniqueId& id);
  // The ranks are connected.
  void SetOpen() { is_open_ = true; }

  // Ends what this rank runs on the device. No operation may follow.
  // False: NCCL has not done so within `bound`, and the link is lost: the device may
  // be in use until the process ends.
  [[nodiscard]] bool Stop(std::chrono::milliseconds bound);
  // Frees the communicator. False as of Stop; also when it was lost before.
  [[nodiscard]] bool Abort(std::chrono::milliseconds bound);

  // Null: there is none, or none any more.
  [[nodiscard]] ncclComm_t communicator() const { return parts_->communicator; }
  [[nodiscard]] cudaStream_t stream() const { return parts_->stream; }
  DeviceBuffer& staging() { return parts_->staging; }

 private:
  enum class State : std::uint8_t { kRunning, kStopped, kLost };
  struct Parts {
    ncclComm_t communicator = nullptr;  // NCCL writes here too when connecting ends
    cudaStream_t stream = nullptr;
    DeviceBuffer staging;
    bool is_quiet = false;  // what Stop's thread has found
  };
  static void Revoke(Parts& parts, std::chrono::steady_clock::time_point deadline);
  static void AbortNow(Parts& parts);
  bool Lose();

  const int device_;
  std::shared_ptr<Parts> parts_ = std::make_shared<Parts>();
  bool is_open_ = false;
  State state_ = State::kRunning;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_NCCL_LINK_H_
