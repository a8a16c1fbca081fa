// The replies, as bytes.
#include "launcher/tcpstore/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "tests/unit/tcpstore/bytes.h"

namespace ddl::tcpstore {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ServeTest : public ::testing::Test {
 protected:
  absl::Status Try(KeyTable::Client client, std::string_view bytes) {
    RequestParser parser(limits_);
    const std::string opened = Opening() + std::string(bytes);
    std::string_view rest = opened;
    absl::Status status;
    while (!rest.empty() && status.ok()) {
      auto request = parser.Next(rest);
      EXPECT_TRUE(request.ok()) << request.status();
      EXPECT_TRUE(request->has_value());
      status = Serve(client, **std::move(request), limits_, table_, out_);
    }
    return status;
  }
  std::string Ask(std::string_view bytes, KeyTable::Client client = 1) {
    const absl::Status status = Try(client, bytes);
    EXPECT_TRUE(status.ok()) << status;
    return TakeAll();
  }
  std::string TakeAll() {
    std::string all;
    while (!out_.empty()) {
      const std::string_view front = out_.front().substr(0, 1'000);
      all.append(front);
      out_.Take(front.size());
    }
    return all;
  }

  Limits limits_;
  KeyTable table_{limits_};
  OutBuffer out_;
};

TEST_F(ServeTest, EveryOperation_HasPyTorchsReply) {
  EXPECT_EQ(Ask(Byte(13) + U32(77)), U32(77));
  EXPECT_EQ(Ask(Byte(1) + Text("a") + Text("1")), "");
  EXPECT_EQ(Ask(Byte(2) + Text("a") + Text("1") + Text("2")), Text("2"));
  EXPECT_EQ(Ask(Byte(3) + Text("a")), Text("2"));
  EXPECT_EQ(Ask(Byte(3) + Text("none")), Text(""));
  EXPECT_EQ(Ask(Byte(4) + Text("n") + I64(3)), I64(3));
  EXPECT_EQ(Ask(Byte(5) + I64(2) + Text("a") + Text("n")), Byte(0));
  EXPECT_EQ(Ask(Byte(5) + I64(2) + Text("a") + Text("m")), Byte(1));
  EXPECT_EQ(Ask(Byte(6) + I64(1) + Text("a")), Byte(0));
  EXPECT_EQ(Ask(Byte(7)), I64(2));
  EXPECT_EQ(Ask(Byte(8) + Text("n")), I64(1));
  EXPECT_EQ(Ask(Byte(8) + Text("n")), I64(0));
  EXPECT_EQ(Ask(Byte(9) + Text("a") + Text("3")), "");
  EXPECT_EQ(Ask(Byte(11) + I64(2) + Text("b") + Text("4") + Text("c") + Text("5")), "");
  EXPECT_EQ(Ask(Byte(10) + I64(3) + Text("a") + Text("b") + Text("c")),
            Text("23") + Text("4") + Text("5"));
  EXPECT_EQ(Ask(Byte(12)), Byte(1));
  EXPECT_EQ(Ask(Byte(14) + Text("q") + Text("x")), "");
  EXPECT_EQ(Ask(Byte(16) + Text("q")), I64(1));
  EXPECT_EQ(Ask(Byte(15) + Text("q")), I64(1) + Text("x"));
  EXPECT_EQ(Ask(Byte(15) + Text("q")), I64(0));
  EXPECT_EQ(Ask(Byte(18) + Text("barrier") + I64(1)), Byte(0));
  EXPECT_EQ(Ask(Byte(8) + Text("a") + Byte(8) + Text("b") + Byte(8) + Text("c")),
            I64(1) + I64(1) + I64(1));
  EXPECT_EQ(Ask(Byte(17)), I64(1) + Text("barrier"));
}

TEST_F(ServeTest, Wait_HasNoReplyUntilItIsOver_AndAnyRequestEndsIt) {
  EXPECT_EQ(Ask(Byte(6) + I64(1) + Text("k"), 1), "");
  EXPECT_EQ(Ask(Byte(6) + I64(1) + Text("k"), 2), "");
  // 1.13's clients give up without a word, and ask something else.
  EXPECT_EQ(Ask(Byte(7), 1), I64(0));
  EXPECT_EQ(Ask(Byte(1) + Text("k") + Text(""), 3), "");
  EXPECT_THAT(table_.TakeWoken(), ElementsAre(2));
  EXPECT_EQ(Ask(Byte(6) + I64(1) + Text("l") + Byte(12), 2), Byte(1));
  EXPECT_EQ(Ask(Byte(1) + Text("l") + Text(""), 3), "");
  EXPECT_THAT(table_.TakeWoken(), IsEmpty());
}

TEST_F(ServeTest, LargeValues_AreSharedInTheirPlaceAmongSmallReplies) {
  const std::string large(100'000, 'x');
  EXPECT_EQ(Ask(Byte(1) + Text("l") + Text(large) + Byte(4) + Text("n") + I64(1) + Byte(3) +
                Text("l") + Byte(4) + Text("n") + I64(1) + Byte(3) + Text("l")),
            I64(1) + Text(large) + I64(2) + Text(large));
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(table_.Get("l").use_count(), 2);  // the table's and this one
}

TEST_F(ServeTest, WhatHasNoReply_IsAnError) {
  EXPECT_TRUE(Try(1, Byte(1) + Text("a") + Text("word")).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Try(1, Byte(4) + Text("a") + I64(1))));
  limits_.max_reply_bytes = 20;
  EXPECT_TRUE(absl::IsResourceExhausted(Try(1, Byte(10) + I64(2) + Text("a") + Text("a"))));
  EXPECT_TRUE(Try(1, Byte(1) + Text("and another key") + Text("")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Try(1, Byte(17))));
}

}  // namespace
}  // namespace ddl::tcpstore
