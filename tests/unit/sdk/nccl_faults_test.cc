// The NCCL backend over a fake CUDA and NCCL: what it does when they fail, or hang.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddl/nccl_backend.h"
#include "ddl/out_of_memory.h"
#include "tests/unit/sdk/fake_cuda.h"
#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::FakeCuda;
using ::ddl::testing::MakeContext;
using ::ddl::testing::OnEveryRank;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::milliseconds kLong = std::chrono::minutes(1);  // nobody waits so long
constexpr std::chrono::milliseconds kShort{50};                       // somebody does

class NcclFaults : public ::testing::Test {
 protected:
  NcclFaults() { FakeCuda::Get().Reset(); }

  static void Answer(const std::string& call, int result) {
    FakeCuda::Get().Set(call, [result] { return result; });
  }
  static void Restore(const std::string& call) { FakeCuda::Get().Set(call, {}); }

  // Rank 0 of a world of one, on device `local_rank`.
  static std::unique_ptr<NcclBackend> Alone(std::chrono::milliseconds timeout, int local_rank = 0) {
    internal::Membership membership;
    membership.local_rank = local_rank;
    const Context context =
        internal::ContextAccess::Make(membership, std::make_shared<internal::MemoryGateway>(1), {});
    auto backend = CreateNcclBackend(context, {timeout});
    EXPECT_TRUE(backend.ok()) << backend.status();
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  static absl::Status Sum(Backend& backend, std::size_t count = 10) {
    std::vector<float> values(count, 2);
    absl::Status status = backend.AllReduceSum(std::span(values));
    EXPECT_THAT(values, Each(2.0F));
    return status;
  }
};

// A call that does not come back while the program runs.
std::optional<int> NeverReturn() {
  struct Wait {
    std::mutex mutex;
    std::condition_variable never;
  };
  static auto& wait = *new Wait;  // outlives the static destructors, as the threads do
  std::unique_lock lock(wait.mutex);
  wait.never.wait(lock, [] { return false; });
  return std::nullopt;
}

TEST_F(NcclFaults, OperationsOfAllKinds_LeaveNothingBehind) {
  {
    const auto backend = Alone(kLong);
    EXPECT_TRUE(Sum(*backend).ok());
    EXPECT_TRUE(Sum(*backend, 1000).ok());
    std::vector<std::byte> bytes(7);
    EXPECT_TRUE(backend->Broadcast(bytes, 0).ok());
    EXPECT_EQ(backend->Broadcast(bytes, 1).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(backend->BroadcastOnDevice(nullptr, 0, 1).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(backend->Barrier().ok());
    EXPECT_TRUE(backend->Reconnect().ok());
    EXPECT_TRUE(backend->AllReduceSumOnDevice(nullptr, 0).ok());
    EXPECT_TRUE(backend->Close().ok());
    EXPECT_EQ(backend->Reconnect().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommAbort"), 2);
  EXPECT_EQ(FakeCuda::Get().Living(), 0);
  EXPECT_EQ(FakeCuda::Get().Misuses(), 0);
}

// ---- which number, which device ----------------------------------------------

// Three ranks, two on node 0 and one on node 1.
Context TwoAndOne(std::shared_ptr<internal::Gateway> gateway, int rank) {
  internal::Membership membership;
  membership.rank = rank;
  membership.world_size = 3;
  membership.local_rank = rank == 2 ? 0 : rank;
  membership.local_world_size = rank == 2 ? 1 : 2;
  membership.node_rank = rank == 2 ? 1 : 0;
  membership.num_nodes = 2;
  return internal::ContextAccess::Make(membership, std::move(gateway), {});
}

TEST_F(NcclFaults, NodesOfUnequalNproc_ConnectAndCountAlike) {
  const auto gateway = std::make_shared<internal::MemoryGateway>(3);
  std::vector<std::int64_t> next(3);
  OnEveryRank(3, [&](int rank) {
    const Context context = TwoAndOne(gateway, rank);
    const auto backend = CreateNcclBackend(context, {kLong});
    EXPECT_TRUE(backend.ok()) << "rank " << rank << ": " << backend.status();
    next[static_cast<std::size_t>(rank)] = context.NextSequence();
  });
  EXPECT_THAT(next, Each(next[0]));
}

TEST_F(NcclFaults, NodeWithoutDevice_CountsAlikeSoThatGlooStillConnects) {
  thread_local bool has_none = false;
  FakeCuda::Get().Set("cudaGetDeviceCount", [] {
    return has_none ? std::optional<int>(cudaErrorNoDevice) : std::nullopt;
  });
  // It goes on only when Gloo is tried: so the others' time with NCCL is over.
  const auto gateway = std::make_shared<internal::MemoryGateway>(3);
  Answer("ncclCommGetAsyncError", ncclInProgress);
  OnEveryRank(3, [&](int rank) {
    has_none = rank == 2;
    const Context context = TwoAndOne(gateway, rank);
    const auto backend = CreateNcclBackend(context, {kShort});
    EXPECT_EQ(backend.status().code(), rank == 2 ? absl::StatusCode::kFailedPrecondition
                                                 : absl::StatusCode::kDeadlineExceeded)
        << backend.status();
    EXPECT_EQ(FakeCuda::LastError(), cudaSuccess);
    const auto gloo = CreateBackend(context, "gloo", {kLong});
    EXPECT_TRUE(gloo.ok()) << gloo.status();
  });
}

TEST_F(NcclFaults, AnotherThread_UsesTheBackendsDeviceAndKeepsItsOwn) {
  const auto backend = Alone(kLong, /*local_rank=*/1);
  std::thread([&] {
    cudaSetDevice(0);
    EXPECT_TRUE(Sum(*backend).ok());
    EXPECT_TRUE(backend->AllReduceSumOnDevice(nullptr, 0).ok());
    EXPECT_TRUE(backend->Reconnect().ok());
    int device = -1;
    cudaGetDevice(&device);
    EXPECT_EQ(device, 0);
  }).join();
  for (const char* const call : {"cudaMalloc", "cudaMemcpyAsync", "ncclAllReduce",
                                 "ncclCommInitRankConfig", "cudaStreamCreateWithFlags"}) {
    EXPECT_THAT(FakeCuda::Get().Calls(), Not(Contains(std::string(call) + " on 0")));
    EXPECT_THAT(FakeCuda::Get().Calls(), Contains(std::string(call) + " on 1"));
  }
}

TEST_F(NcclFaults, ThreadThatHasChosenNoDevice_MakesNoContextOnDeviceZero) {
  std::thread([&] {
    const auto backend = Alone(kLong, /*local_rank=*/1);
    EXPECT_TRUE(Sum(*backend).ok());
  }).join();
  EXPECT_TRUE(FakeCuda::Get().IsInUse(1));
  EXPECT_FALSE(FakeCuda::Get().IsInUse(0));
}

// ---- errors -------------------------------------------------------------------

TEST_F(NcclFaults, PollingAStream_LeavesNoErrorToTheProgram) {
  const auto backend = Alone(kLong);
  int polls = 0;
  FakeCuda::Get().Set("cudaStreamQuery",
                      [&] { return ++polls < 3 ? cudaErrorNotReady : cudaSuccess; });
  EXPECT_TRUE(Sum(*backend).ok());
  EXPECT_GE(polls, 3);
  EXPECT_EQ(FakeCuda::LastError(), cudaSuccess);
}

TEST_F(NcclFaults, NoMemoryForStaging_IsOutOfMemoryAndBreaksTheBackend) {
  const auto backend = Alone(kLong);
  Answer("cudaMalloc", cudaErrorMemoryAllocation);
  const absl::Status first = Sum(*backend, 100);
  Restore("cudaMalloc");
  EXPECT_EQ(first.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOutOfMemory(first));
  EXPECT_EQ(MemoryUseOf(first), (MemoryUse{400, 0, 0, 100, 1000}));
  EXPECT_EQ(first.message(),
            "out of memory: nccl, rank 0 of 1, all-reduce of 100 numbers, making room for it on "
            "the device: CUDA says out of memory");
  EXPECT_EQ(FakeCuda::LastError(), cudaSuccess);
  EXPECT_EQ(Sum(*backend, 1), first);
  EXPECT_EQ(backend->AllReduceSumOnDevice(nullptr, 0), first);
  EXPECT_EQ(backend->Close(), first);
  EXPECT_TRUE(backend->Reconnect().ok());
  EXPECT_TRUE(Sum(*backend, 100).ok());
}

TEST_F(NcclFaults, NoMemoryInsideNccl_IsOutOfMemory) {
  const auto backend = Alone(kLong);
  Answer("ncclGetLastError", 0);
  Answer("ncclAllReduce", ncclUnhandledCudaError);
  const absl::Status status = Sum(*backend);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOutOfMemory(status)) << status;
}

TEST_F(NcclFaults, CopyThatFails_BreaksTheBackend) {
  const auto backend = Alone(kLong);
  Answer("cudaMemcpyAsync", cudaErrorIllegalAddress);
  const absl::Status first = Sum(*backend);
  Restore("cudaMemcpyAsync");
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(first.message()), HasSubstr("copying to the device: CUDA says"));
  EXPECT_EQ(Sum(*backend), first);
}

TEST_F(NcclFaults, PeerThatFails_IsUnavailable) {
  const auto backend = Alone(kLong);
  Answer("ncclCommGetAsyncError", ncclRemoteError);
  const absl::Status status = Sum(*backend);
  Restore("ncclCommGetAsyncError");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("all-reduce of 10 numbers: remote error (no more is known)"));
}

// ---- ends ---------------------------------------------------------------------

TEST_F(NcclFaults, Reconnect_AbortsOnlyOnceEveryRankHasStopped) {
  constexpr int kWorld = 3;
  std::atomic<int> stopped = 0;
  std::atomic<bool> too_early = false;
  const auto gateway = std::make_shared<internal::MemoryGateway>(kWorld);
  std::vector<std::unique_ptr<NcclBackend>> backends(kWorld);
  OnEveryRank(kWorld, [&](int rank) {
    internal::Membership membership;
    membership.rank = rank;
    membership.world_size = kWorld;
    const Context context = internal::ContextAccess::Make(membership, gateway, {});
    auto backend = CreateNcclBackend(context, {kLong});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backends[static_cast<std::size_t>(rank)] = *std::move(backend);
  });
  FakeCuda::Get().Set("ncclCommRevoke", [&]() -> std::optional<int> {
    ++stopped;
    return std::nullopt;
  });
  FakeCuda::Get().Set("ncclCommAbort", [&]() -> std::optional<int> {
    too_early = too_early || stopped < kWorld;
    return std::nullopt;
  });
  OnEveryRank(kWorld, [&](int rank) {
    Backend& backend = *backends[static_cast<std::size_t>(rank)];
    backend.Interrupt();
    EXPECT_EQ(Sum(backend).code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(backend.Reconnect().ok());
    EXPECT_TRUE(Sum(backend).ok());
  });
  EXPECT_EQ(stopped, kWorld);
  EXPECT_FALSE(too_early);
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommAbort"), kWorld);
  backends.clear();
  EXPECT_EQ(FakeCuda::Get().Living(), 0);
  EXPECT_EQ(FakeCuda::Get().Misuses(), 0);
}

TEST_F(NcclFaults, CommunicatorThatCannotBeRevoked_IsAborted) {
  {
    const auto backend = Alone(kLong);
    Answer("ncclCommRevoke", ncclInvalidArgument);
    backend->Interrupt();
    EXPECT_EQ(Sum(*backend).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(FakeCuda::Get().Count("ncclCommAbort"), 1);
    EXPECT_TRUE(backend->Reconnect().ok());
  }
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommAbort"), 2);
  EXPECT_EQ(FakeCuda::Get().Living(), 0);
  EXPECT_EQ(FakeCuda::Get().Misuses(), 0);
}

TEST_F(NcclFaults, AbortThatNeverReturns_IsLeftBehindAndItsMemoryKept) {
  {
    const auto backend = Alone(kShort);
    EXPECT_TRUE(Sum(*backend).ok());
    FakeCuda::Get().Set("ncclCommAbort", &NeverReturn);
    Answer("ncclCommRevoke", ncclInternalError);
    Answer("cudaStreamQuery", cudaErrorNotReady);
    const absl::Status status = Sum(*backend);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a peer did not come within 50 ms; NCCL has not let go of the device "
                          "within 50 ms: memory it was given may be in use, and this process has "
                          "to exit"));
    EXPECT_EQ(backend->Reconnect(), status);
    EXPECT_EQ(Sum(*backend), status);
  }
  EXPECT_EQ(FakeCuda::Get().Count("cudaFree"), 0);
  EXPECT_EQ(FakeCuda::Get().Count("cudaStreamDestroy"), 0);
}

TEST_F(NcclFaults, DeviceThatNeverGetsQuiet_IsLeftAlone) {
  {
    const auto backend = Alone(kShort);
    Answer("cudaStreamQuery", cudaErrorNotReady);
    const absl::Status status = Sum(*backend);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("NCCL has not let go of the device"));
  }
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommRevoke"), 1);
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommAbort"), 0);
  EXPECT_EQ(FakeCuda::Get().Count("cudaFree"), 0);
}

TEST_F(NcclFaults, OutOfMemoryWhoseAbortHangs_IsStillOutOfMemory) {
  const auto backend = Alone(kShort);
  FakeCuda::Get().Set("ncclCommRevoke", &NeverReturn);
  Answer("cudaMalloc", cudaErrorMemoryAllocation);
  const absl::Status status = Sum(*backend, 100);
  EXPECT_TRUE(IsOutOfMemory(status)) << status;
  EXPECT_EQ(MemoryUseOf(status).asked_bytes, 400);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NCCL has not let go of the device"));
}

TEST_F(NcclFaults, ConnectingThatTimesOut_IsAbortedOnce) {
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(1), 0, 1);
  Answer("ncclCommInitRankConfig", ncclInProgress);
  Answer("ncclCommGetAsyncError", ncclInProgress);
  const auto backend = CreateNcclBackend(context, {kShort});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("connecting: a peer did not"));
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommRevoke"), 0);
  EXPECT_EQ(FakeCuda::Get().Count("ncclCommAbort"), 1);
  EXPECT_EQ(FakeCuda::Get().Living(), 0);
  EXPECT_EQ(FakeCuda::Get().Misuses(), 0);
}

}  // namespace
}  // namespace ddl
