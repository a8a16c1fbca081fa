// The value parsers: what is taken, what is refused, and what the refusal says.
#include "launcher/cli/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>

#include "absl/status/status.h"

namespace ddl::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(ParseInteger, InRange_IsTaken) {
  EXPECT_EQ(*ParseInteger("0", 0, 9), 0);
  EXPECT_EQ(*ParseInteger("9", 0, 9), 9);
}

TEST(ParseInteger, AnythingElse_SaysTheRange) {
  for (const char* const text :
       {"", " 1", "1 ", "+1", "1.5", "0x1", "10", "-1", "one", "99999999999999999999"}) {
    EXPECT_EQ(ErrorOf(ParseInteger(text, 0, 9)), "must be a whole number from 0 to 9") << text;
  }
  EXPECT_EQ(ErrorOf(ParseInteger("0", 1, std::numeric_limits<std::int64_t>::max())),
            "must be a whole number of 1 or more");
}

TEST(ParseNumber, NotFinite_IsRefused) {
  for (const char* const text : {"nan", "inf", "1e999", "", "1,5", "-0.1"}) {
    EXPECT_FALSE(ParseNumber(text, Zero::kAllowed).ok()) << text;
  }
  EXPECT_TRUE(ParseNumber("0", Zero::kAllowed).ok());
  EXPECT_FALSE(ParseNumber("0", Zero::kRefused).ok());
  EXPECT_DOUBLE_EQ(*ParseNumber("1e-3", Zero::kRefused), 1e-3);
}

TEST(ParseSeconds, Fractions_AreKept) {
  EXPECT_EQ(*ParseSeconds("0.25", Zero::kRefused), std::chrono::milliseconds(250));
  EXPECT_EQ(*ParseSeconds("0", Zero::kAllowed), Duration::zero());
  EXPECT_THAT(ErrorOf(ParseSeconds("1e12", Zero::kAllowed)), HasSubstr("seconds"));
}

TEST(ParseBool, UsualWords_AreTaken) {
  EXPECT_TRUE(*ParseBool("1"));
  EXPECT_TRUE(*ParseBool("True"));
  EXPECT_FALSE(*ParseBool("0"));
  EXPECT_FALSE(*ParseBool("no"));
  EXPECT_EQ(ErrorOf(ParseBool("2")), "must be 0 or 1");
}

TEST(ParseNodeRange, NumberOrRange_IsTaken) {
  EXPECT_EQ(ParseNodeRange("4")->min, 4);
  EXPECT_EQ(ParseNodeRange("4")->max, 4);
  EXPECT_EQ(ParseNodeRange("2:4")->min, 2);
  EXPECT_EQ(ParseNodeRange("2:4")->max, 4);
}

TEST(ParseNodeRange, Nonsense_IsRefused) {
  for (const char* const text : {"3:1", "1:2:3", "0", "0:1", "-1", "", ":", "1:", ":1", "a"}) {
    EXPECT_THAT(ErrorOf(ParseNodeRange(text)), HasSubstr("N or MIN:MAX with 0 < MIN <= MAX"))
        << text;
  }
}

TEST(ParseNproc, Nonsense_SaysWhatIsAllowed) {
  for (const char* const text : {"0", "-1", "1.5", "", "CPU", "2000", "xpu"}) {
    EXPECT_EQ(ErrorOf(ParseNproc(text)),
              "must be a whole number from 1 to 1024, or cpu, gpu or auto")
        << text;
  }
}

TEST(ParseEndpoint, EveryForm_GivesHostAndPort) {
  struct Case {
    const char* text;
    const char* host;
    std::uint16_t port;
  };
  for (const Case& c :
       {Case{"node0", "node0", 29400}, Case{"node0:1", "node0", 1},
        Case{"10.0.0.1:65535", "10.0.0.1", 65535}, Case{"[::1]:7", "::1", 7},
        Case{"[fe80::1%eth0]", "fe80::1%eth0", 29400}, Case{"localhost:0", "localhost", 0}}) {
    const auto endpoint = ParseEndpoint(c.text, 29400);
    ASSERT_TRUE(endpoint.ok()) << c.text << " " << endpoint.status();
    EXPECT_EQ(endpoint->host, c.host);
    EXPECT_EQ(endpoint->port, c.port);
  }
}

TEST(ParseEndpoint, Nonsense_IsRefused) {
  for (const char* const text : {"", ":29400", "node0:", "node0:x", "node0:65536", "node0:-1",
                                 "::1", "[::1", "[::1]29400", "[]:1", "a b:1", "http://x:1"}) {
    EXPECT_THAT(ErrorOf(ParseEndpoint(text, 29400)), HasSubstr("[IPV6]:PORT")) << text;
  }
}

TEST(ParseListen, EveryForm_IsRead) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& one : {Case{"10.0.0.1:7", "10.0.0.1", 7}, Case{"host", "host", 29400},
                          Case{"10.0.0.1", "10.0.0.1", 29400}, Case{"[::1]:0", "::1", 0},
                          Case{"[::]", "::", 29400}, Case{":7", "::", 7}, Case{"7", "::", 7},
                          Case{"0", "::", 0}, Case{"localhost:0", "localhost", 0}}) {
    const auto listen = ParseListen(one.text);
    ASSERT_TRUE(listen.ok()) << one.text << ": " << listen.status();
    EXPECT_EQ(listen->host, one.host) << one.text;
    EXPECT_EQ(listen->port, one.port) << one.text;
  }
}

TEST(ParseListen, Nonsense_IsRefused) {
  for (const char* const text : {"", ":", "::1", "65536", ":65536", "h:", "h:x", "*:7", "a b:7",
                                 "[::1", "99999999999999999999"}) {
    EXPECT_THAT(ErrorOf(ParseListen(text)), HasSubstr("must be HOST:PORT")) << text;
  }
}

TEST(ParseStreamMap, OneDigit_IsForAll) {
  EXPECT_EQ(ParseStreamMap("3")->of(7), kBothStreams);
  EXPECT_EQ(ParseStreamMap("0")->of(0), kNoStream);
}

TEST(ParseStreamMap, Map_IsByLocalRankWithDefaultNone) {
  const auto map = ParseStreamMap("0:3,12:1");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->of(0), kBothStreams);
  EXPECT_EQ(map->of(12), kStdout);
  EXPECT_EQ(map->of(1), kNoStream);
}

TEST(ParseStreamMap, Nonsense_IsRefused) {
  for (const char* const text : {"", "4", "-1", "0:4", "0:1,0:2", "0:1,", "x:1", "0:1:2", "1,2"}) {
    EXPECT_THAT(ErrorOf(ParseStreamMap(text)), HasSubstr("by local rank: 0:3,1:1")) << text;
  }
}

TEST(ParseRankSet, List_IsTakenAndNonsenseRefused) {
  EXPECT_THAT(*ParseRankSet("2,0,2"), ElementsAre(0, 2));
  EXPECT_FALSE(ParseRankSet("").ok());
  EXPECT_FALSE(ParseRankSet("0,").ok());
  EXPECT_FALSE(ParseRankSet("0,-1").ok());
}

TEST(ParseExitCodes, List_IsTakenAndNonsenseRefused) {
  EXPECT_THAT(*ParseExitCodes("137,77,77"), ElementsAre(77, 137));
  for (const char* const text : {"", "0", "256", "-1", "77,", "77;78", "x"}) {
    EXPECT_THAT(ErrorOf(ParseExitCodes(text)), HasSubstr("from 1 to 255")) << text;
  }
}

TEST(ParseKeyValues, Pairs_AreTaken) {
  EXPECT_THAT(*ParseKeyValues("a=1,b=x=y"), ElementsAre(Pair("a", "1"), Pair("b", "x=y")));
}

TEST(ParseKeyValues, NoValueOrTwice_IsRefused) {
  EXPECT_THAT(ErrorOf(ParseKeyValues("a")), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(ErrorOf(ParseKeyValues("a=")), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(ErrorOf(ParseKeyValues("=1")), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(ErrorOf(ParseKeyValues("a=1,a=2")), HasSubstr("names a twice"));
}

}  // namespace
}  // namespace ddl::cli
