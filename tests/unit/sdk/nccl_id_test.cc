// The NCCL unique id: made for real where the library is, told where it is not.
#include "ddl/nccl_id.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::MakeContext;
using ::ddl::testing::OnEveryRank;
using ::testing::HasSubstr;

bool NcclIsHere() {
  return ::dlopen("libnccl.so.2", RTLD_NOW) != nullptr ||
         ::dlopen("/usr/local/cuda/lib64/libnccl.so.2", RTLD_NOW) != nullptr;
}

TEST(NcclId, WhereTheLibraryIs_EveryRankHasTheSameBytesAndEachCallItsOwn) {
  if (!NcclIsHere()) {
    GTEST_SKIP() << "no libnccl.so.2 on this machine";
  }
  constexpr int kWorld = 4;
  auto gateway = std::make_shared<internal::MemoryGateway>(kWorld);
  std::vector<NcclUniqueId> first(kWorld);
  std::vector<NcclUniqueId> second(kWorld);
  OnEveryRank(kWorld, [&](int rank) {
    const Context context = MakeContext(gateway, rank, kWorld);
    const auto one = AgreeNcclUniqueId(context);
    const auto two = AgreeNcclUniqueId(context);
    ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
    first[static_cast<std::size_t>(rank)] = *one;
    second[static_cast<std::size_t>(rank)] = *two;
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(first[static_cast<std::size_t>(rank)], first[0]);
    EXPECT_EQ(second[static_cast<std::size_t>(rank)], second[0]);
  }
  EXPECT_NE(first[0], second[0]);
  EXPECT_GT(std::count_if(first[0].begin(), first[0].end(), [](char c) { return c != 0; }), 8);
}

TEST(NcclId, RankZeroWithoutTheLibrary_IsToldToTheRest) {
  auto gateway = std::make_shared<internal::MemoryGateway>(2);
  ASSERT_TRUE(gateway->Publish("ddl/nccl/0", "Eno NCCL library; tried x").ok());
  const auto id = AgreeNcclUniqueId(MakeContext(gateway, 1, 2));
  EXPECT_EQ(id.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(id.status().message()), HasSubstr("rank 0: no NCCL library"));
}

TEST(NcclId, BytesThatAreNoId_AreRefused) {
  auto gateway = std::make_shared<internal::MemoryGateway>(2);
  ASSERT_TRUE(gateway->Publish("ddl/nccl/0", "I too short").ok());
  EXPECT_EQ(AgreeNcclUniqueId(MakeContext(gateway, 1, 2)).status().code(),
            absl::StatusCode::kInternal);
}

TEST(NcclId, RankZeroThatNeverComes_IsATimeout) {
  auto gateway = std::make_shared<internal::MemoryGateway>(2);
  EXPECT_EQ(
      AgreeNcclUniqueId(MakeContext(gateway, 1, 2), std::chrono::milliseconds(50)).status().code(),
      absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace ddl
