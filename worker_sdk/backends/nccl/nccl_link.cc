// The communicator's beginning and its bounded end.
#include "worker_sdk/backends/nccl/nccl_link.h"

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "worker_sdk/backends/nccl/bounded.h"
#include "worker_sdk/backends/nccl/scoped_device.h"

#ifdef NCCL_REVOKE_DEFAULT
// A program may meet an older libnccl.so.2 than it was built with: null then.
#pragma weak ncclCommRevoke
#endif

namespace ddl::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRevokePollInterval{1};

bool CanRevoke() {
#ifdef NCCL_REVOKE_DEFAULT
  return ncclCommRevoke != nullptr;
#else
  return false;
#endif
}

// Kept, and reachable, until the process ends.
void KeepForEver(std::shared_ptr<void> what) {
  static std::mutex mutex;
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): outlives the static destructors.
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(what));
}

}  // namespace

NcclLink::NcclLink(int device) : device_(device) {}

NcclLink::~NcclLink() {
  if (state_ == State::kLost) {
    return;
  }
  const ScopedDevice scoped(device_);
  if (parts_->stream != nullptr) {
    cudaStreamDestroy(parts_->stream);
  }
  parts_.reset();
}

cudaError_t NcclLink::MakeStream() {
  return cudaStreamCreateWithFlags(&parts_->stream, cudaStreamNonBlocking);
}

ncclResult_t NcclLink::Open(int world_size, int rank, const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(&parts_->communicator, world_size, id, rank, &config);
}

bool NcclLink::Stop(std::chrono::milliseconds bound) {
  if (state_ != State::kRunning) {
    return state_ == State::kStopped;
  }
  if (parts_->communicator == nullptr) {
    state_ = State::kStopped;
    return true;
  }
  // Before the ranks are connected nothing runs, and not all is there to be revoked.
  if (!is_open_ || !CanRevoke()) {
    return Abort(bound);
  }
  const Clock::time_point deadline = Clock::now() + bound;
  const bool returned = ReturnsWithin(bound, [parts = parts_, device = device_, deadline] {
    cudaSetDevice(device);
    Revoke(*parts, deadline);
  });
  if (!returned || !parts_->is_quiet) {
    return Lose();
  }
  state_ = State::kStopped;
  return true;
}

bool NcclLink::Abort(std::chrono::milliseconds bound) {
  if (state_ == State::kLost) {
    return false;
  }
  if (parts_->communicator != nullptr && !ReturnsWithin(bound, [parts = parts_, device = device_] {
        cudaSetDevice(device);
        AbortNow(*parts);
      })) {
    return Lose();
  }
  parts_->communicator = nullptr;
  state_ = State::kStopped;
  return true;
}

void NcclLink::Revoke(Parts& parts, Clock::time_point deadline) {
#ifdef NCCL_REVOKE_DEFAULT
  ncclResult_t state = ncclCommRevoke(parts.communicator, NCCL_REVOKE_DEFAULT);
  while (state == ncclInProgress && Clock::now() < deadline) {
    std::this_thread::sleep_for(kRevokePollInterval);
    ncclResult_t asynchronous = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(parts.communicator, &asynchronous);
    state = asked == ncclSuccess ? asynchronous : asked;
  }
  if (state != ncclSuccess && state != ncclInProgress) {
    AbortNow(parts);  // it cannot be revoked
    return;
  }
  cudaError_t device = cudaErrorNotReady;
  while (state == ncclSuccess && (device = cudaStreamQuery(parts.stream)) == cudaErrorNotReady &&
         Clock::now() < deadline) {
    std::this_thread::sleep_for(kRevokePollInterval);
  }
  parts.is_quiet = device != cudaErrorNotReady;
#else
  (void)deadline;
  AbortNow(parts);
#endif
}

void NcclLink::AbortNow(Parts& parts) {
  ncclCommAbort(parts.communicator);
  parts.communicator = nullptr;
  parts.is_quiet = true;
}

bool NcclLink::Lose() {
  state_ = State::kLost;
  KeepForEver(parts_);
  return false;
}

}  // namespace ddl::internal
