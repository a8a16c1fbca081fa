// The memory store.
#include "agent/store/memory_store.h"

#include <gtest/gtest.h>

namespace ddl::store {
namespace {

core::Persist State(std::int64_t sequence, std::int64_t round, bool ended) {
  core::Persist persist;
  persist.job_id = "j";
  persist.sequence = sequence;
  persist.round = round;
  persist.ended = ended;
  return persist;
}

TEST(MemoryStore, Write_AnswersOnceAndKeepsTheNewest) {
  MemoryStore store;
  int answers = 0;
  const auto done = [&answers](const absl::Status& status) { answers += status.ok() ? 1 : 0; };
  store.Write(State(1, 1, false), done);
  store.Write(State(2, 2, false), done);
  EXPECT_EQ(answers, 2);
  ASSERT_TRUE(store.Read("j").has_value());
  EXPECT_EQ(store.Read("j")->round, 2);
}

TEST(MemoryStore, EndedJob_IsForgotten) {
  MemoryStore store;
  store.Write(State(1, 1, false), [](const absl::Status&) {});
  store.Write(State(2, 1, true), [](const absl::Status&) {});
  EXPECT_FALSE(store.Read("j").has_value());
  EXPECT_EQ(store.size(), 0U);
}

}  // namespace
}  // namespace ddl::store
