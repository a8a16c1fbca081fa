// The functions, and the two of ours that would ask the real libraries.
#include "tests/unit/sdk/fake_cuda.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stop_token>
#include <utility>

#include "agent/base/status_macros.h"
#include "worker_sdk/backends/nccl/primary_context.h"
#include "worker_sdk/src/nccl_id.h"

// NCCL's own name for what a communicator points to.
struct ncclComm {
  std::atomic<bool> is_revoked = false;
};

namespace ddl::testing {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

// As CUDA: what fails, or is not ready, stays the thread's last error.
cudaError_t Answer(const std::string& call, const std::function<void()>& otherwise = {}) {
  const std::optional<int> hooked = FakeCuda::Get().Note(call);
  if (!hooked.has_value()) {
    if (otherwise) {
      otherwise();
    }
    return cudaSuccess;
  }
  const auto result = static_cast<cudaError_t>(*hooked);
  if (result != cudaSuccess) {
    last_error = result;
  }
  return result;
}

ncclResult_t AnswerNccl(const std::string& call, ncclComm_t communicator) {
  FakeCuda::Get().Use(communicator);
  return static_cast<ncclResult_t>(FakeCuda::Get().Note(call).value_or(ncclSuccess));
}

}  // namespace

FakeCuda& FakeCuda::Get() {
  static auto& fake = *new FakeCuda;  // threads that were left behind may still call
  return fake;
}

void FakeCuda::Reset() {
  const std::lock_guard lock(mutex_);
  hooks_.clear();
  calls_.clear();
  left_behind_.merge(living_);
  living_.clear();
  in_use_.clear();
  misuses_ = 0;
}

void FakeCuda::Set(const std::string& call, Hook hook) {
  const std::lock_guard lock(mutex_);
  hooks_[call] = std::move(hook);
}

std::vector<std::string> FakeCuda::Calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

int FakeCuda::Count(std::string_view call) const {
  const std::string begin = std::string(call) + " on ";
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(calls_.begin(), calls_.end(), [&](const std::string& made) {
    return made.starts_with(begin);
  }));
}

int FakeCuda::Living() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(living_.size());
}

int FakeCuda::Misuses() const {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

int FakeCuda::LastError() {
  return last_error;
}

bool FakeCuda::IsInUse(int device) const {
  const std::lock_guard lock(mutex_);
  return in_use_.contains(device);
}

std::optional<int> FakeCuda::Note(const std::string& call) {
  Hook hook;
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call + " on " + std::to_string(current_device));
    if (const auto it = hooks_.find(call); it != hooks_.end()) {
      hook = it->second;
    }
  }
  return hook ? hook() : std::nullopt;
}

void FakeCuda::Live(const void* what) {
  const std::lock_guard lock(mutex_);
  living_.insert(what);
}

void FakeCuda::Die(const void* what) {
  const std::lock_guard lock(mutex_);
  misuses_ += what != nullptr && living_.erase(what) == 0 ? 1 : 0;
}

void FakeCuda::Use(const void* what) {
  const std::lock_guard lock(mutex_);
  misuses_ += living_.contains(what) || left_behind_.contains(what) ? 0 : 1;
}

void FakeCuda::Touch(int device) {
  const std::lock_guard lock(mutex_);
  in_use_.insert(device);
}

}  // namespace ddl::testing

using ddl::testing::Answer;
using ddl::testing::AnswerNccl;
using ddl::testing::FakeCuda;

extern "C" {

// ---- CUDA -------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return Answer("cudaGetDeviceCount", [count] { *count = 2; });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return Answer("cudaGetDeviceProperties");
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int device) {
  std::snprintf(address, static_cast<std::size_t>(size), "0000:%02x:00.0", device);
  return Answer("cudaDeviceGetPCIBusId");
}
cudaError_t cudaGetDevice(int* device) {
  *device = ddl::testing::current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return Answer("cudaSetDevice", [device] {
    ddl::testing::current_device = device;
    FakeCuda::Get().Touch(device);
  });
}
cudaError_t cudaGetLastError() {
  return std::exchange(ddl::testing::last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error";
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = 100;
  *total_bytes = 1000;
  return Answer("cudaMemGetInfo");
}
cudaError_t cudaMalloc(void** memory, std::size_t size) {
  *memory = nullptr;
  return Answer("cudaMalloc", [&] {
    *memory = std::malloc(size);
    FakeCuda::Get().Live(*memory);
  });
}
cudaError_t cudaFree(void* memory) {
  return Answer("cudaFree", [memory] {
    FakeCuda::Get().Die(memory);
    std::free(memory);
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  FakeCuda::Get().Use(stream);
  return Answer("cudaMemcpyAsync", [&] { std::memcpy(to, from, size); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int /*flags*/) {
  return Answer("cudaStreamCreateWithFlags", [stream] {
    *stream = reinterpret_cast<cudaStream_t>(new char);
    FakeCuda::Get().Live(*stream);
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Answer("cudaStreamDestroy", [stream] {
    FakeCuda::Get().Die(stream);
    delete reinterpret_cast<char*>(stream);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FakeCuda::Get().Use(stream);
  return Answer("cudaStreamQuery");
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FakeCuda::Get().Use(stream);
  return Answer("cudaStreamSynchronize");
}

// ---- NCCL -------------------------------------------------------------------

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int /*world_size*/,
                                    ncclUniqueId /*id*/, int /*rank*/, ncclConfig_t* config) {
  *communicator = new ncclComm;
  FakeCuda::Get().Live(*communicator);
  return config->blocking == 0 ? AnswerNccl("ncclCommInitRankConfig", *communicator)
                               : ncclInvalidArgument;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* result) {
  *result = AnswerNccl("ncclCommGetAsyncError", communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommRevoke(ncclComm_t communicator, int /*flags*/) {
  const ncclResult_t result = AnswerNccl("ncclCommRevoke", communicator);
  return communicator->is_revoked.exchange(true) ? ncclInvalidArgument : result;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const ncclResult_t result = AnswerNccl("ncclCommAbort", communicator);
  FakeCuda::Get().Die(communicator);
  delete communicator;
  return result;
}
ncclResult_t ncclAllReduce(const void* /*from*/, void* /*to*/, std::size_t /*count*/,
                           ncclDataType_t /*type*/, ncclRedOp_t /*operation*/,
                           ncclComm_t communicator, cudaStream_t /*stream*/) {
  return AnswerNccl("ncclAllReduce", communicator);
}
ncclResult_t ncclBroadcast(const void* /*from*/, void* /*to*/, std::size_t /*count*/,
                           ncclDataType_t /*type*/, int /*root*/, ncclComm_t communicator,
                           cudaStream_t /*stream*/) {
  return AnswerNccl("ncclBroadcast", communicator);
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclUnhandledCudaError ? "unhandled cuda error" : "remote error";
}
const char* ncclGetLastError(ncclComm_t /*communicator*/) {
  return FakeCuda::Get().Note("ncclGetLastError").has_value() ? "Cuda failure 2 'out of memory'"
                                                              : "no more is known";
}

}  // extern "C"

// ---- ours, which would ask the driver and libnccl ----------------------------

namespace ddl {

bool internal::MayHavePrimaryContext(int device) {
  return FakeCuda::Get().IsInUse(device);
}

absl::StatusOr<NcclUniqueId> internal::AgreeNcclUniqueId(Gateway& gateway, const std::string& key,
                                                         int rank,
                                                         std::chrono::milliseconds timeout) {
  if (rank == 0) {
    DDL_RETURN_IF_ERROR(gateway.Publish(key, "an id"));
  }
  DDL_RETURN_IF_ERROR(gateway.Fetch(key, timeout, std::stop_token()).status());
  return NcclUniqueId{};
}

}  // namespace ddl
