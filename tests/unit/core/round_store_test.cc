// Keys and barriers.
#include "agent/core/round_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"

namespace ddl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(RoundStore, Put_ReturnsTheWaitersOnce) {
  RoundStore store;
  EXPECT_EQ(*store.Want("id", "b"), std::nullopt);
  EXPECT_EQ(*store.Want("id", "a"), std::nullopt);
  EXPECT_EQ(*store.Want("id", "a"), std::nullopt);
  EXPECT_THAT(*store.Put("id", "v"), ElementsAre("a", "b"));
  EXPECT_THAT(*store.Put("id", "v"), IsEmpty());
  EXPECT_THAT(*store.Want("id", "c"), Optional(std::string("v")));
}

TEST(RoundStore, PutOtherValue_FailsAndTheFirstStays) {
  RoundStore store;
  ASSERT_TRUE(store.Put("id", "first").ok());
  EXPECT_EQ(store.Put("id", "second").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(*store.Want("id", "a"), Optional(std::string("first")));
}

TEST(RoundStore, NamesAndValuesOutOfBounds_Fail) {
  RoundStore store;
  const std::string long_name(limits::kMaxKeyBytes + 1, 'k');
  EXPECT_EQ(store.Put("", "v").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.Put(long_name, "v").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Want(long_name, "a").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Reach(long_name, "a", 1).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Put("k", std::string(limits::kMaxValueBytes + 1, 'v')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.Put("k", std::string(limits::kMaxValueBytes, 'v')).ok());
}

TEST(RoundStore, BytesBeyondTheLimit_FailAndOldKeysStay) {
  RoundStore store;
  const std::string value(limits::kMaxValueBytes, 'v');
  std::size_t written = 0;
  absl::Status status;
  while (status.ok() && written <= limits::kMaxStoreBytesPerRound / limits::kMaxValueBytes) {
    status = store.Put(absl::StrCat("key", written), value).status();
    written += status.ok() ? 1 : 0;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(written, limits::kMaxStoreBytesPerRound / limits::kMaxValueBytes - 1);
  EXPECT_THAT(*store.Want("key0", "a"), Optional(value));
}

TEST(RoundStore, BarriersBeyondTheLimit_Fail) {
  RoundStore store;
  for (std::size_t i = 0; i < limits::kMaxBarriersPerRound; ++i) {
    ASSERT_TRUE(store.Reach(std::to_string(i), "a", 2).ok());
  }
  EXPECT_EQ(store.Reach("one more", "a", 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*store.Reach("0", "b", 2), RoundStore::Barrier::kComplete);
}

TEST(RoundStore, Barrier_CompletesOnceWhenAllDifferentMembersCame) {
  RoundStore store;
  EXPECT_EQ(*store.Reach("x", "a", 2), RoundStore::Barrier::kWaiting);
  EXPECT_EQ(*store.Reach("x", "a", 2), RoundStore::Barrier::kWaiting);
  EXPECT_EQ(*store.Reach("x", "b", 2), RoundStore::Barrier::kComplete);
  EXPECT_EQ(*store.Reach("x", "a", 2), RoundStore::Barrier::kWasComplete);
}

}  // namespace
}  // namespace ddl::core
