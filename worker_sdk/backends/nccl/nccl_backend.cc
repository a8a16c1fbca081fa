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
#include "ddl/out_of_memory.h"
#include "worker_sdk/backends/nccl/cuda_status.h"
#include "worker_sdk/backends/nccl/nccl_link.h"
#include "worker_sdk/backends/nccl/scoped_device.h"
#include "worker_sdk/src/device_claim.h"
#include "worker_sdk/src/gateway.h"
#include "worker_sdk/src/group_mark.h"
#include "worker_sdk/src/nccl_id.h"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;
using internal::CudaStatus;
using internal::NcclLink;
using internal::ScopedDevice;

static_assert(sizeof(ncclUniqueId) == kNcclUniqueIdBytes);

// Between two looks at a stream. Short beside a collective, long beside a poll.
constexpr std::chrono::microseconds kPollInterval{20};

// How long NCCL may take to stop or abort, or as long as the timeout where that is
// shorter. Aborts of ten seconds have been seen by others.
constexpr std::chrono::milliseconds kEndBound = std::chrono::seconds(30);

bool Failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

// `status` with more to its text.
absl::Status Append(const absl::Status& status, const std::string& text) {
  absl::Status longer(status.code(), std::string(status.message()) + text);
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { longer.SetPayload(type, payload); });
  return longer;
}

class NcclBackendImpl final : public NcclBackend {
 public:
  // `prefix` names what belongs to this backend at the gateway.
  NcclBackendImpl(const Context& context, int device, std::chrono::milliseconds timeout,
                  std::string prefix)
      : rank_(context.rank()),
        world_size_(context.world_size()),
        device_(device),
        timeout_(timeout),
        gateway_(internal::ContextAccess::GatewayOf(context)),
        prefix_(std::move(prefix)),
        mark_(gateway_, prefix_) {}

  // Aborting needs no peer; a clean end has nothing in flight to lose.
  ~NcclBackendImpl() override {
    if (link_ != nullptr) {
      [[maybe_unused]] const bool ended = link_->Abort(EndBound());
    }
  }

  absl::Status Connect(const NcclUniqueId& id) {
    const std::string what = "connecting";
    return OnDevice(what, [&] {
      link_ = std::make_unique<NcclLink>(device_);
      DDL_RETURN_IF_ERROR(Check(link_->MakeStream(), what, ", making a stream"));
      ncclUniqueId unique_id{};
      std::copy(id.begin(), id.end(), unique_id.internal);
      const Clock::time_point deadline = Clock::now() + timeout_;
      DDL_RETURN_IF_ERROR(Finish(what, link_->Open(world_size_, rank_, unique_id), deadline));
      link_->SetOpen();
      return absl::OkStatus();
    });
  }

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return world_size_; }

  absl::Status AllReduceSum(std::span<float> values) override {
    return Staged(std::as_writable_bytes(values), AllReduceName(values.size()),
                  [&](void* data) { return AllReduce(data, values.size(), ncclFloat); });
  }
  absl::Status AllReduceSum(std::span<double> values) override {
    return Staged(std::as_writable_bytes(values), AllReduceName(values.size()),
                  [&](void* data) { return AllReduce(data, values.size(), ncclDouble); });
  }
  absl::Status Broadcast(std::span<std::byte> bytes, int root) override {
    DDL_RETURN_IF_ERROR(CheckRoot(root));
    return Staged(bytes, BroadcastName(bytes.size()),
                  [&](void* data) { return BroadcastOf(data, bytes.size(), root); });
  }
  absl::Status Barrier() override {
    float token = 0;
    return AllReduceSum(std::span(&token, 1));
  }
  absl::Status Reconnect() override {
    if (closed_ || lost_) {
      return broken_;
    }
    interrupted_ = false;
    broken_ = absl::OkStatus();
    ++reconnections_;
    absl::Status connected = ConnectAnew(prefix_ + "again/" + std::to_string(reconnections_) + "/");
    if (broken_.ok()) {
      broken_ = connected;
    }
    return connected;
  }
  void Interrupt() override { interrupted_ = true; }
  absl::Status Close() override {
    DDL_RETURN_IF_ERROR(broken_);
    closed_ = true;
    broken_ = absl::FailedPreconditionError(Who() + ": the backend was closed");
    absl::Status closed = gateway_->Barrier(prefix_ + "close", timeout_, std::stop_token());
    mark_.Leave();
    return closed;
  }

  absl::Status AllReduceSumOnDevice(float* device_values, std::size_t count) override {
    return OnDevice(AllReduceName(count),
                    [&] { return AllReduce(device_values, count, ncclFloat); });
  }
  absl::Status BroadcastOnDevice(void* device_bytes, std::size_t size, int root) override {
    DDL_RETURN_IF_ERROR(CheckRoot(root));
    return OnDevice(BroadcastName(size), [&] { return BroadcastOf(device_bytes, size, root); });
  }

 private:
  static std::string AllReduceName(std::size_t count) {
    return "all-reduce of " + std::to_string(count) + " numbers";
  }
  static std::string BroadcastName(std::size_t size) {
    return "broadcast of " + std::to_string(size) + " bytes";
  }

  // The ranks stop, meet, and free: none frees what another's kernel still reads.
  absl::Status ConnectAnew(const std::string& keys) {
    if (link_ != nullptr && !link_->Stop(EndBound())) {
      return Lost(absl::DeadlineExceededError(Who() + ", connecting anew"));
    }
    DDL_RETURN_IF_ERROR(gateway_->Barrier(keys + "stopped", timeout_, std::stop_token()));
    if (link_ != nullptr && !link_->Abort(EndBound())) {
      return Lost(absl::DeadlineExceededError(Who() + ", connecting anew"));
    }
    link_.reset();
    DDL_ASSIGN_OR_RETURN(const NcclUniqueId id,
                         internal::AgreeNcclUniqueId(*gateway_, keys + "id", rank_, timeout_));
    return Connect(id);
  }

  absl::Status CheckRoot(int root) const {
    return root >= 0 && root < world_size_
               ? absl::OkStatus()
               : absl::InvalidArgumentError("broadcast from rank " + std::to_string(root) +
                                            " in a world of " + std::to_string(world_size_));
  }

  // Calls `operation` with this rank's device as the current one, unless the backend is
  // broken or interrupted.
  template <typename Operation>
  absl::Status OnDevice(const std::string& what, const Operation& operation) {
    DDL_RETURN_IF_ERROR(broken_);
    const ScopedDevice scoped(device_);
    DDL_RETURN_IF_ERROR(Check(scoped.result(), what, ", choosing the device"));
    if (interrupted_) {
      return Interrupted(what);
    }
    return operation();
  }

  absl::Status AllReduce(void* data, std::size_t count, ncclDataType_t type) {
    const Clock::time_point deadline = Clock::now() + timeout_;
    return Finish(
        AllReduceName(count),
        ncclAllReduce(data, data, count, type, ncclSum, link_->communicator(), link_->stream()),
        deadline);
  }
  absl::Status BroadcastOf(void* data, std::size_t size, int root) {
    const Clock::time_point deadline = Clock::now() + timeout_;
    return Finish(
        BroadcastName(size),
        ncclBroadcast(data, data, size, ncclUint8, root, link_->communicator(), link_->stream()),
        deadline);
  }

  // Host memory to the device, `operation` there, and back.
  template <typename Operation>
  absl::Status Staged(std::span<std::byte> bytes, const std::string& what,
                      const Operation& operation) {
    if (bytes.empty()) {
      return broken_;
    }
    return OnDevice(what, [&]() -> absl::Status {
      const auto size = bytes.size();
      DDL_RETURN_IF_ERROR(
          Check(link_->staging().Reserve(size), what, ", making room for it on the device", size));
      void* const data = link_->staging().data();
      DDL_RETURN_IF_ERROR(
          Check(cudaMemcpyAsync(data, bytes.data(), size, cudaMemcpyHostToDevice, link_->stream()),
                what, ", copying to the device"));
      DDL_RETURN_IF_ERROR(operation(data));
      cudaError_t copied =
          cudaMemcpyAsync(bytes.data(), data, size, cudaMemcpyDeviceToHost, link_->stream());
      copied = copied == cudaSuccess ? cudaStreamSynchronize(link_->stream()) : copied;
      return Check(copied, what, ", copying from the device");
    });
  }

  // Waits until NCCL has queued the operation and the device has done it.
  absl::Status Finish(const std::string& what, ncclResult_t result, Clock::time_point deadline) {
    while (!Failed(result) && Clock::now() < deadline) {
      if (interrupted_) {
        return Interrupted(what);
      }
      ncclResult_t state = ncclSuccess;
      result = ncclCommGetAsyncError(link_->communicator(), &state);
      result = Failed(result) ? result : state;
      if (result == ncclSuccess) {
        const cudaError_t done = cudaStreamQuery(link_->stream());
        if (done != cudaErrorNotReady) {
          return Check(done, what);
        }
        // Else the program takes it for the error of a kernel it launches next.
        cudaGetLastError();
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    return Break(Failed(result) ? NcclStatus(result, what)
                                : absl::DeadlineExceededError(
                                      Who() + ", " + what + ": a peer did not come within " +
                                      std::to_string(timeout_.count()) + " ms"));
  }

  absl::Status NcclStatus(ncclResult_t result, const std::string& what) const {
    const char* const why = link_->communicator() == nullptr
                                ? ncclGetErrorString(result)
                                : ncclGetLastError(link_->communicator());
    const std::string text =
        Who() + ", " + what + ": " + ncclGetErrorString(result) + " (" + why + ")";
    return SaysOutOfMemory(text) ? OutOfMemory({}, text) : absl::UnavailableError(text);
  }

  absl::Status Interrupted(const std::string& what) {
    return Break(absl::AbortedError(Who() + ", " + what + ": the ranks are to connect anew"));
  }

  // An error of CUDA's breaks the backend like any other: the peers are in an operation
  // that this rank will not join.
  absl::Status Check(cudaError_t result, const std::string& what, const char* doing = "",
                     std::size_t asked_bytes = 0) {
    return result == cudaSuccess ? absl::OkStatus()
                                 : Break(CudaStatus(result, Who() + ", " + what + doing,
                                                    static_cast<std::int64_t>(asked_bytes)));
  }

  // The communicator is of no more use, here or, once it is gone, to the peers.
  absl::Status Break(const absl::Status& status) {
    broken_ = status;
    if (link_ != nullptr && !link_->Stop(EndBound())) {
      return Lost(status);
    }
    return broken_;
  }

  absl::Status Lost(const absl::Status& status) {
    lost_ = true;
    broken_ = Append(status, "; NCCL has not let go of the device within " +
                                 std::to_string(EndBound().count()) +
                                 " ms: memory it was given may be in use, and this process has "
                                 "to exit");
    return broken_;
  }

  [[nodiscard]] std::chrono::milliseconds EndBound() const { return std::min(timeout_, kEndBound); }

  [[nodiscard]] std::string Who() const {
    return "nccl, rank " + std::to_string(rank_) + " of " + std::to_string(world_size_);
  }

  const int rank_;
  const int world_size_;
  const int device_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<internal::Gateway> gateway_;
  const std::string prefix_;  // names what belongs to this backend at the gateway
  internal::GroupMark mark_;
  std::unique_ptr<NcclLink> link_;  // null: connecting anew failed
  int reconnections_ = 0;
  bool closed_ = false;
  bool lost_ = false;  // NCCL may be using the device still; there is no way on
  std::atomic<bool> interrupted_ = false;
  absl::Status broken_;  // the first error; every later call returns it
};

// "0000:0b:00.0 (UUID in hexadecimal)": the same in every process, whatever
// CUDA_VISIBLE_DEVICES makes of the numbers; MIG instances differ in the UUID.
absl::StatusOr<std::string> NameOf(int device) {
  cudaDeviceProp properties{};
  DDL_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device),
                                 "nccl, reading the device's properties"));
  constexpr std::size_t kAddressBytes = 32;
  std::array<char, kAddressBytes> address{};
  DDL_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device),
                 "nccl, reading the device's address"));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string uuid;
  for (const char signed_byte : properties.uuid.bytes) {
    const auto byte = static_cast<unsigned char>(signed_byte);
    uuid += kDigits[byte >> 4U];
    uuid += kDigits[byte & 0xFU];
  }
  return std::string(address.data()) + " (" + uuid + ")";
}

absl::Status ClaimOwnDevice(const Context& context, const std::string& prefix, int device,
                            std::chrono::milliseconds timeout) {
  if (context.local_world_size() == 1) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(const std::string name, NameOf(device));
  return internal::ClaimDevice(context, prefix, name, timeout);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclBackend>> CreateNcclBackend(const Context& context,
                                                               const BackendOptions& options) {
  // Before all that may fail or be left out on one rank only: the numbers that the ranks
  // count must stay the same on all, also for what they try next.
  const std::string prefix = "ddl/nccl/" + std::to_string(context.NextSequence()) + "/";
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        "nccl, rank " + std::to_string(context.rank()) + ": no CUDA device on this node" +
        (result == cudaSuccess ? "" : std::string(" (") + cudaGetErrorString(result) + ")") +
        "; use the gloo backend");
  }
  const int device = context.local_rank() % devices;
  DDL_RETURN_IF_ERROR(ClaimOwnDevice(context, prefix + "device/", device, options.timeout));
  DDL_ASSIGN_OR_RETURN(const NcclUniqueId id,
                       internal::AgreeNcclUniqueId(*internal::ContextAccess::GatewayOf(context),
                                                   prefix + "id", context.rank(), options.timeout));
  auto backend = std::make_unique<NcclBackendImpl>(context, device, options.timeout, prefix);
  DDL_RETURN_IF_ERROR(backend->Connect(id));
  return backend;
}

}  // namespace ddl
