// The NCCL backend: without a device it says so; with one, a world of one sums.
#include "ddl/nccl_backend.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::MakeContext;
using ::testing::Each;
using ::testing::HasSubstr;

bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

TEST(NcclBackend, WithoutDevice_SaysSoAtOnce) {
  if (HasDevice()) {
    GTEST_SKIP() << "this machine has a CUDA device";
  }
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(2), 1, 2);
  const auto backend = CreateNcclBackend(context);
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()),
              HasSubstr("nccl, rank 1: no CUDA device on this node"));
}

TEST(NcclBackend, WorldOfOneOnADevice_LeavesValuesAsTheyAre) {
  if (!HasDevice()) {
    GTEST_SKIP() << "no CUDA device on this machine";
  }
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(1), 0, 1);
  auto backend = CreateNcclBackend(context);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "nccl");
  std::vector<float> floats(1000, 2);
  std::vector<double> doubles(10, 3);
  EXPECT_TRUE((*backend)->AllReduceSum(std::span(floats)).ok());
  EXPECT_TRUE((*backend)->AllReduceSum(std::span(doubles)).ok());
  EXPECT_TRUE((*backend)->Broadcast(std::as_writable_bytes(std::span(floats)), 0).ok());
  EXPECT_TRUE((*backend)->Barrier().ok());
  (*backend)->Interrupt();
  EXPECT_EQ((*backend)->Barrier().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE((*backend)->Reconnect().ok());
  EXPECT_TRUE((*backend)->AllReduceSum(std::span(floats)).ok());
  EXPECT_TRUE((*backend)->Close().ok());
  EXPECT_THAT(floats, Each(2.0F));
  EXPECT_THAT(doubles, Each(3.0));
}

}  // namespace
}  // namespace ddl
