// Keys, queues and waits, and each of their bounds.
#include "launcher/tcpstore/key_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ddl::tcpstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KeyTableTest : public ::testing::Test {
 protected:
  std::string Value(const std::string& key) const {
    const Blob value = table_.Get(key);
    return value == nullptr ? "<none>" : *value;
  }
  void Set(const std::string& key, const std::string& value) {
    EXPECT_TRUE(table_.Set(key, value).ok());
  }
  std::string CompareSet(const std::string& key, const std::string& expected,
                         const std::string& desired) {
    return **table_.CompareSet(key, expected, desired);
  }
  bool Wait(KeyTable::Client client, const std::vector<std::string>& keys) {
    return table_.Wait(client, keys).value();
  }

  Limits limits_;
  KeyTable table_{limits_};
};

TEST_F(KeyTableTest, SetGetDelete_KeepAccount) {
  EXPECT_EQ(Value("a"), "<none>");
  Set("a", "1");
  Set("a", "longer");
  Set("b", "");
  EXPECT_EQ(Value("a"), "longer");
  EXPECT_EQ(Value("b"), "");
  EXPECT_EQ(table_.size(), 2U);
  EXPECT_TRUE(table_.Delete("a"));
  EXPECT_FALSE(table_.Delete("a"));
  EXPECT_TRUE(table_.Delete("b"));
  EXPECT_EQ(table_.stored_bytes(), 0U);
  EXPECT_EQ(table_.key_bytes(), 0U);
}

TEST_F(KeyTableTest, Set_WhileAReplyCarriesTheValue_DoesNotChangeTheReply) {
  Set("a", "old");
  const Blob reply = table_.Get("a");
  Set("a", "new");
  EXPECT_TRUE(table_.Append("a", "er").ok());
  const Blob later = table_.Get("a");
  EXPECT_TRUE(table_.Append("a", "!").ok());
  EXPECT_EQ(*reply, "old");
  EXPECT_EQ(*later, "newer");
  EXPECT_EQ(Value("a"), "newer!");
}

TEST_F(KeyTableTest, CompareSet_AsPyTorchDoes) {
  EXPECT_EQ(CompareSet("k", "expected", "new"), "expected");  // no such key: nothing is set
  EXPECT_EQ(Value("k"), "<none>");
  EXPECT_EQ(CompareSet("k", "", "first"), "first");
  EXPECT_EQ(CompareSet("k", "wrong", "second"), "first");
  EXPECT_EQ(CompareSet("k", "first", "second"), "second");
}

TEST_F(KeyTableTest, Add_KeepsDecimalText) {
  EXPECT_EQ(table_.Add("n", 5).value(), 5);
  EXPECT_EQ(table_.Add("n", -7).value(), -2);
  EXPECT_EQ(Value("n"), "-2");
  Set("n", " +12 apples");
  EXPECT_EQ(table_.Add("n", 1).value(), 13);
  Set("n", "apples");
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Add("n", 1).status()));
  Set("n", "");
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Add("n", 1).status()));
  Set("n", "9223372036854775807");
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Add("n", 1).status()));
  EXPECT_EQ(Value("n"), "9223372036854775807");
}

TEST_F(KeyTableTest, Append_ToNothing_Sets) {
  EXPECT_TRUE(table_.Append("a", "x").ok());
  EXPECT_TRUE(table_.Append("a", "yz").ok());
  EXPECT_EQ(Value("a"), "xyz");
}

TEST_F(KeyTableTest, Wait_EndsWithTheLastOfItsKeys) {
  Set("a", "1");
  EXPECT_TRUE(Wait(1, {"a"}));
  EXPECT_TRUE(Wait(1, {}));
  EXPECT_FALSE(Wait(1, {"a", "b", "c", "b"}));
  EXPECT_FALSE(Wait(2, {"c"}));
  Set("b", "");
  EXPECT_THAT(table_.TakeWoken(), IsEmpty());
  EXPECT_EQ(table_.Add("c", 1).value(), 1);
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(1, 2));
  EXPECT_EQ(table_.wait_bytes(), 0U);
}

TEST_F(KeyTableTest, Wait_IsEndedByEveryWayToMakeAKey) {
  EXPECT_FALSE(Wait(1, {"a"}));
  EXPECT_FALSE(Wait(2, {"b"}));
  EXPECT_FALSE(Wait(3, {"c"}));
  EXPECT_TRUE(table_.Append("a", "").ok());
  CompareSet("b", "", "x");
  EXPECT_TRUE(table_.Push("c", "").ok());
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(1, 2, 3));
}

TEST_F(KeyTableTest, CancelWait_ForgetsTheClientOnly) {
  EXPECT_FALSE(Wait(1, {"a", "b"}));
  EXPECT_FALSE(Wait(2, {"a"}));
  table_.CancelWait(1);
  table_.CancelWait(1);
  table_.CancelWait(7);
  Set("a", "");
  Set("b", "");
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(2));
  EXPECT_EQ(table_.wait_bytes(), 0U);
}

TEST_F(KeyTableTest, Wait_Again_ReplacesTheFirst) {
  EXPECT_FALSE(Wait(1, {"a"}));
  EXPECT_FALSE(Wait(1, {"b"}));
  Set("a", "");
  EXPECT_THAT(table_.TakeWoken(), IsEmpty());
  Set("b", "");
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(1));
}

TEST_F(KeyTableTest, Barrier_WakesAllWithTheLastToCome) {
  EXPECT_FALSE(table_.Barrier(1, "b", 3).value());
  EXPECT_FALSE(Wait(9, {"c"}));
  EXPECT_FALSE(table_.Barrier(2, "b", 3).value());
  EXPECT_THAT(table_.TakeWoken(), IsEmpty());
  EXPECT_TRUE(table_.Barrier(3, "b", 3).value());
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(1, 2));
  EXPECT_TRUE(table_.Barrier(4, "alone", 1).value());
  EXPECT_EQ(Value("b"), "3");
}

TEST_F(KeyTableTest, Queue_IsFirstInFirstOut_AndWakesOneWaiterEach) {
  EXPECT_EQ(table_.Pop("q").length_before, 0U);
  EXPECT_FALSE(Wait(1, {"q"}));
  EXPECT_FALSE(Wait(2, {"q"}));
  EXPECT_TRUE(table_.Push("q", "x").ok());
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(1));
  EXPECT_TRUE(table_.Push("q", "y").ok());
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(2));
  EXPECT_TRUE(Wait(3, {"q"}));
  EXPECT_TRUE(table_.HasAll({"q"}));
  EXPECT_EQ(table_.QueueLength("q"), 2U);
  const KeyTable::Popped first = table_.Pop("q");
  EXPECT_EQ(first.length_before, 2U);
  EXPECT_EQ(*first.value, "x");
  EXPECT_EQ(*table_.Pop("q").value, "y");
  EXPECT_FALSE(table_.HasAll({"q"}));
  EXPECT_EQ(table_.stored_bytes(), 0U);
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(KeyTableTest, Queue_OneWhoWaitsForMoreIsPassedOver) {
  EXPECT_FALSE(Wait(1, {"q", "other"}));
  EXPECT_FALSE(Wait(2, {"q"}));
  EXPECT_TRUE(table_.Push("q", "x").ok());
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(2));
}

TEST_F(KeyTableTest, Bounds_RefuseByName_AndChangeNothing) {
  limits_.max_keys = 2;
  Set("a", "1");
  EXPECT_TRUE(table_.Push("q", "1").ok());
  EXPECT_THAT(std::string(table_.Set("b", "1").message()), HasSubstr("it holds 2 keys"));
  EXPECT_THAT(std::string(table_.Push("q", "1").message()), HasSubstr("it holds 2 keys"));
  EXPECT_THAT(std::string(table_.Add("b", 1).status().message()), HasSubstr("it holds 2 keys"));
  Set("a", "2");

  limits_.max_value_bytes = 4;
  EXPECT_THAT(std::string(table_.Append("a", "5678").message()), HasSubstr("grow to 5 bytes"));
  EXPECT_EQ(Value("a"), "2");

  limits_.max_keys = 1'000;
  limits_.max_stored_bytes = table_.stored_bytes() + 2;
  Set("a", "234");
  EXPECT_THAT(std::string(table_.Set("a", "2345").message()), HasSubstr("bytes"));
  EXPECT_EQ(Value("a"), "234");

  limits_.max_wait_bytes = 200;
  EXPECT_FALSE(Wait(1, {"x"}));
  EXPECT_THAT(std::string(table_.Wait(2, {"x"}).status().message()), HasSubstr("200 bytes"));
  EXPECT_THAT(std::string(table_.Barrier(2, "a", 1'000).status().message()), HasSubstr("bytes"));
}

TEST_F(KeyTableTest, Barrier_Refused_IsNotCounted) {
  limits_.max_wait_bytes = 0;
  EXPECT_FALSE(table_.Barrier(1, "b", 2).ok());
  EXPECT_EQ(Value("b"), "<none>");
  limits_.max_wait_bytes = 1'000;
  EXPECT_FALSE(table_.Barrier(1, "b", 2).value());
  EXPECT_EQ(Value("b"), "1");
  limits_.max_wait_bytes = table_.wait_bytes();
  EXPECT_FALSE(table_.Barrier(2, "b", 3).ok());
  EXPECT_EQ(Value("b"), "1");
  EXPECT_TRUE(table_.Barrier(2, "b", 2).value());  // the last one waits for nobody
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(1));
}

TEST_F(KeyTableTest, ManyWaiters_ComeAndGo_InTimeThatGrowsWithTheirNumber) {
  constexpr KeyTable::Client kClients = 100'000;
  for (KeyTable::Client client = 0; client < kClients; ++client) {
    EXPECT_FALSE(Wait(client, {"go"}));
  }
  for (KeyTable::Client client = 0; client < kClients; client += 2) {
    table_.CancelWait(client);
  }
  Set("go", "");
  EXPECT_EQ(table_.TakeWoken().size(), kClients / 2);
}

}  // namespace
}  // namespace ddl::tcpstore
