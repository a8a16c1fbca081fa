// Both dialects, byte by byte and all at once; what is no request is refused.
#include "launcher/tcpstore/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tcpstore/bytes.h"

namespace ddl::tcpstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProtocolTest : public ::testing::Test {
 protected:
  // Fed in pieces of `step` bytes.
  absl::StatusOr<std::vector<Request>> Parse(std::string_view bytes, std::size_t step) {
    RequestParser parser(limits_);
    std::vector<Request> requests;
    while (!bytes.empty()) {
      std::string_view piece = bytes.substr(0, step);
      bytes.remove_prefix(piece.size());
      while (!piece.empty()) {
        auto request = parser.Next(piece);
        if (!request.ok()) {
          return request.status();
        }
        if (request->has_value()) {
          requests.push_back(**std::move(request));
        }
      }
    }
    dialect_ = parser.dialect();
    held_bytes_ = parser.held_bytes();
    return requests;
  }

  // The same whole, byte by byte, and in pieces of 7.
  std::vector<Request> Read(std::string_view bytes) {
    std::vector<Request> requests;
    for (const std::size_t step : {bytes.size(), std::size_t{1}, std::size_t{7}}) {
      auto parsed = Parse(bytes, step);
      EXPECT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(held_bytes_, 0U);
      if (!requests.empty()) {
        EXPECT_EQ(parsed->size(), requests.size()) << "in pieces of " << step;
      }
      requests = *std::move(parsed);
    }
    return requests;
  }

  std::string Refused(std::string_view bytes) {
    const auto parsed = Parse(bytes, bytes.size());
    EXPECT_FALSE(parsed.ok());
    return std::string(parsed.status().message());
  }

  Limits limits_;
  Dialect dialect_ = Dialect::kUnknown;
  std::size_t held_bytes_ = 0;
};

TEST_F(ProtocolTest, Bare_FirstByteIsNoZero_IsThatOperation) {
  // What 1.13 sends when it connects.
  const auto requests = Read(Byte(3) + Text("init/") + I64(1));
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(dialect_, Dialect::kBare);
  EXPECT_EQ(requests[0].op, Op::kAdd);
  EXPECT_THAT(requests[0].keys, ElementsAre("init/"));
  EXPECT_EQ(requests[0].number, 1);
}

TEST_F(ProtocolTest, Bare_SetFirst_IsNotTakenForAnOpening) {
  const auto requests = Read(Byte(0) + Text("/key") + Text("value") + Byte(2) + Text("/key"));
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(dialect_, Dialect::kBare);
  EXPECT_EQ(requests[0].op, Op::kSet);
  EXPECT_THAT(requests[0].keys, ElementsAre("/key"));
  EXPECT_THAT(requests[0].values, ElementsAre("value"));
  EXPECT_EQ(requests[1].op, Op::kGet);
}

TEST_F(ProtocolTest, Bare_EveryOperation_HasItsNumber) {
  const auto requests =
      Read(Byte(0) + Text("a") + Text("1") + Byte(1) + Text("a") + Text("1") + Text("2") + Byte(2) +
           Text("a") + Byte(3) + Text("n") + I64(-5) + Byte(4) + I64(2) + Text("a") + Text("b") +
           Byte(5) + I64(1) + Text("c") + Byte(6) + Byte(8) + Text("a") + Byte(9) + Text("a") +
           Text("x") + Byte(10) + I64(1) + Text("a") + Byte(11) + I64(2) + Text("a") + Text("1") +
           Text("b") + Text("2") + Byte(12));
  ASSERT_EQ(requests.size(), 12U);
  const std::vector<Op> expected = {Op::kSet,    Op::kCompareSet, Op::kGet,      Op::kAdd,
                                    Op::kCheck,  Op::kWait,       Op::kNumKeys,  Op::kDelete,
                                    Op::kAppend, Op::kMultiGet,   Op::kMultiSet, Op::kCancelWait};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(requests[i].op, expected[i]) << i;
  }
  EXPECT_THAT(requests[1].values, ElementsAre("1", "2"));
  EXPECT_EQ(requests[3].number, -5);
  EXPECT_THAT(requests[4].keys, ElementsAre("a", "b"));
  EXPECT_THAT(requests[10].values, ElementsAre("1", "2"));
}

TEST_F(ProtocolTest, Bare_WatchKey_IsRefused) {
  EXPECT_THAT(Refused(Byte(7) + Text("a")), HasSubstr("operation 7"));
}

TEST_F(ProtocolTest, Validated_Opening_ThenPing) {
  // What 2.15 sends when it connects.
  const auto requests = Read(Opening() + Byte(13) + U32(29246));
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(dialect_, Dialect::kValidated);
  EXPECT_EQ(requests[0].op, Op::kPing);
  EXPECT_EQ(requests[0].number, 29246);
}

TEST_F(ProtocolTest, Validated_EveryOperation_HasItsNumber) {
  const auto requests =
      Read(Opening() + Byte(1) + Text("a") + Text("") + Byte(2) + Text("a") + Text("") + Text("2") +
           Byte(3) + Text("a") + Byte(4) + Text("n") + I64(7) + Byte(5) + I64(0) + Byte(6) +
           I64(1) + Text("c") + Byte(7) + Byte(8) + Text("a") + Byte(9) + Text("a") + Text("x") +
           Byte(10) + I64(2) + Text("a") + Text("b") + Byte(11) + I64(1) + Text("a") + Text("1") +
           Byte(12) + Byte(13) + U32(1) + Byte(14) + Text("q") + Text("v") + Byte(15) + Text("q") +
           Byte(16) + Text("q") + Byte(17) + Byte(18) + Text("b") + I64(4));
  const std::vector<Op> expected = {
      Op::kSet,     Op::kCompareSet, Op::kGet,      Op::kAdd,      Op::kCheck,    Op::kWait,
      Op::kNumKeys, Op::kDelete,     Op::kAppend,   Op::kMultiGet, Op::kMultiSet, Op::kCancelWait,
      Op::kPing,    Op::kQueuePush,  Op::kQueuePop, Op::kQueueLen, Op::kListKeys, Op::kBarrier};
  ASSERT_EQ(requests.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(requests[i].op, expected[i]) << i;
  }
  EXPECT_THAT(requests[0].values, ElementsAre(""));
  EXPECT_THAT(requests[4].keys, IsEmpty());
  EXPECT_THAT(requests[17].keys, ElementsAre("b"));
  EXPECT_EQ(requests[17].number, 4);
}

TEST_F(ProtocolTest, Validated_UnknownOperations_AreRefused) {
  EXPECT_THAT(Refused(Opening() + Byte(19)), HasSubstr("operation 19"));
  EXPECT_THAT(Refused(Opening() + Opening()), HasSubstr("operation 0"));
}

TEST_F(ProtocolTest, Strangers_AreRefused) {
  EXPECT_THAT(Refused("GET / HTTP/1.1\r\n\r\n"), HasSubstr("operation 71"));
  EXPECT_THAT(Refused("SSH-2.0-OpenSSH_9.2\r\n"), HasSubstr("operation 83"));
  EXPECT_THAT(Refused("\x16\x03\x01\x02"), HasSubstr("operation 22"));  // TLS
  // A zero, then neither the magic number nor a length that a key may have.
  EXPECT_THAT(Refused(Byte(0) + std::string(8, '\x7f')), HasSubstr("a key of"));
}

TEST_F(ProtocolTest, Lengths_BeyondTheLimits_AreRefusedBeforeTheyCome) {
  limits_.max_key_bytes = 8;
  limits_.max_value_bytes = 16;
  limits_.max_keys_per_request = 2;
  limits_.max_request_bytes = 150;
  EXPECT_THAT(Refused(Byte(2) + I64(9)), HasSubstr("a key of 9 bytes; at most 8"));
  EXPECT_THAT(Refused(Byte(2) + I64(-1)), HasSubstr("a key of"));
  EXPECT_THAT(Refused(Byte(0) + Text("a") + I64(17)), HasSubstr("a value of 17 bytes"));
  EXPECT_THAT(Refused(Byte(5) + I64(3)), HasSubstr("3 keys; at most 2"));
  EXPECT_THAT(Refused(Byte(1) + Text("key") + Text("value") + Text("value")),
              HasSubstr("more than 150 bytes"));
}

TEST_F(ProtocolTest, HeldBytes_CountWhatCame_NotWhatWasAnnounced) {
  const auto parsed = Parse(Byte(0) + Text("key") + I64(1'000'000) + "abc", 64);
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(*parsed, IsEmpty());
  EXPECT_EQ(held_bytes_, 2 * kStringOverhead + 6);
}

}  // namespace
}  // namespace ddl::tcpstore
