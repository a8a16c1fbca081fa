// NCCL with a non-blocking communicator: every wait is ours, so that it can end
// at a deadline or when NCCL sees a peer fail.
#include "ddl/nccl_backend.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "agent/base/status_macros.h"
#include "worker_sdk/backends/nccl/device_buffer.h"
#include "worker_sdk/src/device_claim.h"
#include "worker_sdk/src/gateway.h"
#include "worker_sdk/src/group_mark.h"
#include "worker_sdk/src/nccl_id.h"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

static_assert(sizeof(ncclUniqueId) == kNcclUniqueIdBytes);

// Between two looks at a stream. Short beside a collective, long beside a poll.
constexpr std::chrono::microseconds kPollInterval{20};

absl::Status CudaStatus(cudaError_t result, const std::string& doing) {
  if (result == cudaSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError("nccl, " + doing + ": CUDA says " + cudaGetErrorString(result));
}

bool Failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

class NcclBackendImpl final : public NcclBackend {
 public:
  NcclBackendImpl(const Context& context, int device, std::chrono::milliseconds timeout)
      : rank_(context.rank()),
        world_size_(context.world_size()),
        device_(device),
        timeout_(timeout),
        gateway_(internal::ContextAccess::GatewayOf(context)),
        prefix_("ddl/nccl/" + std::to_string(context.NextSequence()) + "/"),
        mark_(gateway_, prefix_) {}

  ~NcclBackendImpl() override {
    // Aborting needs no peer; a clean end has nothing in flight to lose.
    if (communicator_ != nullptr) {
      ncclCommAbort(communicator_);
    }
    if (stream_ != nullptr) {
      cudaStreamDestroy(stream_);
    }
  }

  absl::Status Connect(const NcclUniqueId& id) {
    DDL_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "choosing the device"));
    if (stream_ == nullptr) {
      DDL_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                     "making a stream"));
    }
    ncclUniqueId unique_id{};
    std::copy(id.begin(), id.end(), unique_id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const Clock::time_point deadline = Clock::now() + timeout_;
    return Finish("connecting",
                  ncclCommInitRankConfig(&communicator_, world_size_, unique_id, rank_, &config),
                  deadline);
  }

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return world_size_; }

  absl::Status AllReduceSum(std::span<float> values) override {
    return Staged(std::as_writable_bytes(values),
                  [&](void* data) { return AllReduce(data, values.size(), ncclFloat); });
  }
  absl::Status AllReduceSum(std::span<double> values) override {
    return Staged(std::as_writable_bytes(values),
                  [&](void* data) { return AllReduce(data, values.size(), ncclDouble); });
  }
  absl::Status Broadcast(std::span<std::byte> bytes, int root) override {
    return Staged(bytes, [&](void* data) { return BroadcastOnDevice(data, bytes.size(), root); });
  }
  absl::Status Barrier() override {
    float token = 0;
    return AllReduceSum(std::span(&token, 1));
  }
  absl::Status Reconnect() override {
    if (closed_) {
      return broken_;
    }
    // Aborting ends what still runs on the device, and needs no peer.
    if (communicator_ != nullptr) {
      ncclCommAbort(std::exchange(communicator_, nullptr));
    }
    interrupted_ = false;
    broken_ = absl::OkStatus();
    ++reconnections_;
    const absl::StatusOr<NcclUniqueId> id = internal::AgreeNcclUniqueId(
        *gateway_, prefix_ + "again/" + std::to_string(reconnections_), rank_, timeout_);
    absl::Status connected = id.ok() ? Connect(*id) : id.status();
    if (broken_.ok()) {
      broken_ = connected;
    }
    return connected;
  }
  void Interrupt() override { interrupted_ = true; }
  absl::Status Close() override {
    DDL_RETURN_IF_ERROR(broken_);
    closed_ = true;
    broken_ = absl::FailedPreconditionError("nccl, rank " + std::to_string(rank_) +
                                            ": the backend was closed");
    absl::Status closed = gateway_->Barrier(prefix_ + "close", timeout_, std::stop_token());
    mark_.Leave();
    return closed;
  }

  absl::Status AllReduceSumOnDevice(float* device_values, std::size_t count) override {
    return AllReduce(device_values, count, ncclFloat);
  }
  absl::Status BroadcastOnDevice(void* device_bytes, std::size_t size, int root) override {
    if (root < 0 || root >= world_size_) {
      return absl::InvalidArgumentError("broadcast from rank " + std::to_string(root) +
                                        " in a world of " + std::to_string(world_size_));
    }
    DDL_RETURN_IF_ERROR(broken_);
    const Clock::time_point deadline = Clock::now() + timeout_;
    return Finish(
        "broadcast of " + std::to_string(size) + " bytes",
        ncclBroadcast(device_bytes, device_bytes, size, ncclUint8, root, communicator_, stream_),
        deadline);
  }

 private:
  absl::Status AllReduce(void* data, std::size_t count, ncclDataType_t type) {
    DDL_RETURN_IF_ERROR(broken_);
    const Clock::time_point deadline = Clock::now() + timeout_;
    return Finish("all-reduce of " + std::to_string(count) + " numbers",
                  ncclAllReduce(data, data, count, type, ncclSum, communicator_, stream_),
                  deadline);
  }

  // Host memory to the device, `operation` there, and back.
  template <typename Operation>
  absl::Status Staged(std::span<std::byte> bytes, const Operation& operation) {
    if (bytes.empty()) {
      return broken_;
    }
    DDL_RETURN_IF_ERROR(CudaStatus(staging_.Reserve(bytes.size()), "making room on the device"));
    DDL_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(staging_.data(), bytes.data(), bytes.size(),
                                                   cudaMemcpyHostToDevice, stream_),
                                   "copying to the device"));
    DDL_RETURN_IF_ERROR(operation(staging_.data()));
    DDL_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(bytes.data(), staging_.data(), bytes.size(),
                                                   cudaMemcpyDeviceToHost, stream_),
                                   "copying from the device"));
    return CudaStatus(cudaStreamSynchronize(stream_), "copying from the device");
  }

  // Waits until NCCL has queued the operation and the device has done it.
  absl::Status Finish(const std::string& what, ncclResult_t result, Clock::time_point deadline) {
    while (!Failed(result) && Clock::now() < deadline) {
      if (interrupted_) {
        return Break(absl::StatusCode::kAborted, what, "the ranks are to connect anew");
      }
      ncclResult_t state = ncclSuccess;
      result = ncclCommGetAsyncError(communicator_, &state);
      result = Failed(result) ? result : state;
      if (result == ncclSuccess) {
        const cudaError_t done = cudaStreamQuery(stream_);
        if (done == cudaSuccess) {
          return absl::OkStatus();
        }
        if (done != cudaErrorNotReady) {
          return Break(absl::StatusCode::kInternal, what, cudaGetErrorString(done));
        }
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    if (Failed(result)) {
      const char* const text =
          communicator_ == nullptr ? ncclGetErrorString(result) : ncclGetLastError(communicator_);
      return Break(absl::StatusCode::kUnavailable, what,
                   std::string(ncclGetErrorString(result)) + " (" + text + ")");
    }
    return Break(absl::StatusCode::kDeadlineExceeded, what,
                 "a peer did not come within " + std::to_string(timeout_.count()) + " ms");
  }

  // The communicator is of no more use, here or, once it is gone, to the peers.
  absl::Status Break(absl::StatusCode code, const std::string& what, const std::string& why) {
    broken_ = absl::Status(code, "nccl, rank " + std::to_string(rank_) + " of " +
                                     std::to_string(world_size_) + ", " + what + ": " + why);
    if (communicator_ != nullptr) {
      ncclCommAbort(std::exchange(communicator_, nullptr));
    }
    return broken_;
  }

  const int rank_;
  const int world_size_;
  const int device_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<internal::Gateway> gateway_;
  const std::string prefix_;  // names what belongs to this backend at the gateway
  internal::GroupMark mark_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  internal::DeviceBuffer staging_;
  int reconnections_ = 0;
  bool closed_ = false;
  std::atomic<bool> interrupted_ = false;
  absl::Status broken_;  // the first error; every later call returns it
};

// "0000:0b:00.0 (UUID in hexadecimal)": the same in every process, whatever
// CUDA_VISIBLE_DEVICES makes of the numbers; MIG instances differ in the UUID.
absl::StatusOr<std::string> NameOf(int device) {
  cudaDeviceProp properties{};
  DDL_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, device), "reading the device's properties"));
  constexpr std::size_t kAddressBytes = 32;
  std::array<char, kAddressBytes> address{};
  DDL_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device),
                 "reading the device's address"));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string uuid;
  for (const char signed_byte : properties.uuid.bytes) {
    const auto byte = static_cast<unsigned char>(signed_byte);
    uuid += kDigits[byte >> 4U];
    uuid += kDigits[byte & 0xFU];
  }
  return std::string(address.data()) + " (" + uuid + ")";
}

absl::Status ClaimOwnDevice(const Context& context, int device, std::chrono::milliseconds timeout) {
  if (context.local_world_size() == 1) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(const std::string name, NameOf(device));
  return internal::ClaimDevice(context, name, timeout);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclBackend>> CreateNcclBackend(const Context& context,
                                                               const BackendOptions& options) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    return absl::FailedPreconditionError(
        "nccl, rank " + std::to_string(context.rank()) + ": no CUDA device on this node" +
        (result == cudaSuccess ? "" : std::string(" (") + cudaGetErrorString(result) + ")") +
        "; use the gloo backend");
  }
  const int device = context.local_rank() % devices;
  DDL_RETURN_IF_ERROR(ClaimOwnDevice(context, device, options.timeout));
  DDL_ASSIGN_OR_RETURN(const NcclUniqueId id, AgreeNcclUniqueId(context, options.timeout));
  auto backend = std::make_unique<NcclBackendImpl>(context, device, options.timeout);
  DDL_RETURN_IF_ERROR(backend->Connect(id));
  return backend;
}

}  // namespace ddl
