// One device a rank: two ranks with one are both named, to every rank of the node.
#include "worker_sdk/src/device_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/sdk/world.h"

namespace ddl::internal {
namespace {

using ::ddl::testing::OnEveryRank;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{60};

// Two nodes of equal size.
Context ContextOf(std::shared_ptr<Gateway> gateway, int rank, int world_size) {
  Membership membership;
  membership.rank = rank;
  membership.world_size = world_size;
  membership.local_world_size = world_size / 2;
  membership.local_rank = rank % membership.local_world_size;
  membership.node_rank = rank / membership.local_world_size;
  membership.num_nodes = 2;
  return ContextAccess::Make(membership, std::move(gateway), {});
}

std::vector<absl::Status> Claim(const std::vector<std::string>& devices) {
  const int world_size = static_cast<int>(devices.size());
  auto gateway = std::make_shared<MemoryGateway>(world_size);
  std::vector<absl::Status> claimed(devices.size());
  OnEveryRank(world_size, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    claimed[index] =
        ClaimDevice(ContextOf(gateway, rank, world_size), "test/", devices[index], kTimeout);
  });
  return claimed;
}

TEST(ClaimDevice, OneEach_AlsoTheSameOnOtherNodes_IsFine) {
  for (const absl::Status& status : Claim({"0b:00", "0c:00", "0b:00", "0c:00"})) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(ClaimDevice, TwoRanksWithOne_EveryRankOfTheNodeIsToldBoth) {
  const std::vector<absl::Status> claimed =
      Claim({"0a:00", "0b:00", "0c:00", "0a:00", "0b:00", "0a:00"});
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(claimed[static_cast<std::size_t>(rank)].ok());
  }
  for (const std::size_t rank : {3U, 4U, 5U}) {
    EXPECT_EQ(claimed[rank].code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(claimed[rank].message()),
                HasSubstr("ranks 3 and 5 (local ranks 0 and 2 of node 1) both use device 0a:00"));
  }
}

TEST(ClaimDevice, RankThatNeverComes_IsATimeout) {
  auto gateway = std::make_shared<MemoryGateway>(4);
  EXPECT_EQ(
      ClaimDevice(ContextOf(gateway, 0, 4), "test/", "0b:00", std::chrono::milliseconds(50)).code(),
      absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace ddl::internal
