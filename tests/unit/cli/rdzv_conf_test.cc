// The keys of --rdzv-conf: what each means, and what contradicts what.
#include "launcher/cli/rdzv_conf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace ddl::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

RdzvConf Parsed(const std::string& text) {
  const absl::StatusOr<RdzvConf> conf = ParseRdzvConf(text);
  EXPECT_TRUE(conf.ok()) << text << ": " << conf.status();
  return conf.value_or(RdzvConf{});
}

std::string ErrorOf(const std::string& text) {
  const absl::Status status = ParseRdzvConf(text).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
  return std::string(status.message());
}

// The heartbeats of a text that must name some.
Heartbeats HeartbeatsOf(const std::string& text) {
  const RdzvConf conf = Parsed(text);
  EXPECT_TRUE(conf.heartbeats.has_value()) << text;
  return conf.heartbeats.value_or(Heartbeats{});
}

TEST(RdzvConf, WithoutKeys_DecidesNothing) {
  const RdzvConf conf = Parsed("use_libuv=0,store_type=tcp");
  EXPECT_FALSE(conf.join_timeout.has_value());
  EXPECT_FALSE(conf.last_call_timeout.has_value());
  EXPECT_FALSE(conf.close_timeout.has_value());
  EXPECT_FALSE(conf.heartbeats.has_value());
  EXPECT_TRUE(conf.remarks.empty());
}

TEST(RdzvConf, Timeouts_TakeFractionsAndSomeTakeZero) {
  const RdzvConf conf = Parsed("join_timeout=0.5,last_call_timeout=0,close_timeout=0.001");
  EXPECT_EQ(conf.join_timeout, milliseconds(500));
  EXPECT_EQ(conf.last_call_timeout, Duration::zero());
  EXPECT_EQ(conf.close_timeout, milliseconds(1));
  EXPECT_THAT(ErrorOf("join_timeout=0"), HasSubstr("join_timeout must be"));
  EXPECT_THAT(ErrorOf("join_timeout=0.0000001"), HasSubstr("0.001 seconds or more"));
  EXPECT_THAT(ErrorOf("last_call_timeout=-1"), HasSubstr("last_call_timeout must be"));
  EXPECT_THAT(ErrorOf("close_timeout=1e9"), HasSubstr("at most a year"));
}

TEST(RdzvConf, Timeout_IsTheStaticNameOfJoinTimeout) {
  EXPECT_EQ(Parsed("timeout=9").join_timeout, seconds(9));
  EXPECT_EQ(Parsed("timeout=9,join_timeout=8").join_timeout, seconds(8));
}

TEST(RdzvConf, HeartbeatTimeoutAlone_BeatsFiveTimesButAtMostEverySecond) {
  EXPECT_EQ(HeartbeatsOf("heartbeat_timeout=2").timeout, seconds(2));
  EXPECT_EQ(HeartbeatsOf("heartbeat_timeout=2").interval, milliseconds(400));
  EXPECT_EQ(HeartbeatsOf("heartbeat_timeout=60").interval, seconds(1));
  EXPECT_THAT(ErrorOf("heartbeat_timeout=0.05"), HasSubstr("0.1 seconds or more"));
}

TEST(RdzvConf, KeepAlive_IsIntervalTimesAttempts) {
  EXPECT_EQ(HeartbeatsOf("keep_alive_interval=2,keep_alive_max_attempt=10").timeout, seconds(20));
  EXPECT_EQ(HeartbeatsOf("keep_alive_interval=2,keep_alive_max_attempt=10").interval, seconds(2));
  EXPECT_EQ(HeartbeatsOf("keep_alive_interval=0.1,keep_alive_max_attempt=5").timeout,
            milliseconds(500));
  EXPECT_THAT(ErrorOf("keep_alive_interval=0.02,keep_alive_max_attempt=1"),
              HasSubstr("keep_alive_interval x keep_alive_max_attempt must be from 0.1 s"));
  EXPECT_THAT(ErrorOf("keep_alive_interval=31622400,keep_alive_max_attempt=1000000"),
              HasSubstr("keep_alive_interval x keep_alive_max_attempt must be"));
}

TEST(RdzvConf, HalfOfKeepAlive_IsCompletedByTorchrunsDefault) {
  EXPECT_EQ(HeartbeatsOf("keep_alive_interval=2").timeout, seconds(6));
  EXPECT_EQ(HeartbeatsOf("keep_alive_max_attempt=4").timeout, seconds(20));
}

TEST(RdzvConf, FewAttempts_BeatMoreOftenThanTheInterval) {
  const Heartbeats heartbeats = HeartbeatsOf("keep_alive_interval=5,keep_alive_max_attempt=3");
  EXPECT_EQ(heartbeats.timeout, seconds(15));
  EXPECT_EQ(heartbeats.interval, seconds(3)) << "one late heartbeat must be no loss";
  EXPECT_THAT(Parsed("keep_alive_interval=5,keep_alive_max_attempt=3").remarks,
              Contains(HasSubstr("a heartbeat every 3 s; a node is lost after 15 s")));
}

TEST(RdzvConf, KeepAliveWithHeartbeatTimeout_MustAgree) {
  const std::string text = "keep_alive_interval=0.1,keep_alive_max_attempt=30,heartbeat_timeout=3";
  EXPECT_EQ(HeartbeatsOf(text).interval, milliseconds(100));
  EXPECT_EQ(HeartbeatsOf(text).timeout, seconds(3));
  EXPECT_THAT(ErrorOf("keep_alive_interval=2,keep_alive_max_attempt=5,heartbeat_timeout=5"),
              AllOf(HasSubstr("keep_alive_interval=2 x keep_alive_max_attempt=5"),
                    HasSubstr("contradicts heartbeat_timeout=5")));
  EXPECT_THAT(ErrorOf("keep_alive_interval=2,heartbeat_timeout=5"),
              HasSubstr("keep_alive_interval=2 must be at most a quarter of heartbeat_timeout=5 "
                        "(1.25 s)"));
  EXPECT_EQ(HeartbeatsOf("keep_alive_interval=1.25,heartbeat_timeout=5").timeout, seconds(5));
  EXPECT_EQ(HeartbeatsOf("keep_alive_max_attempt=10,heartbeat_timeout=5").interval,
            milliseconds(500));
  EXPECT_EQ(HeartbeatsOf("keep_alive_max_attempt=2,heartbeat_timeout=5").interval, seconds(1));
}

TEST(RdzvConf, Nonsense_IsRefused) {
  EXPECT_THAT(ErrorOf("heartbeat_timout=7"), HasSubstr("did you mean heartbeat_timeout?"));
  EXPECT_THAT(ErrorOf("zzz=7"), HasSubstr("no such key: zzz"));
  EXPECT_THAT(ErrorOf("join_timeout=x"), HasSubstr("join_timeout must be"));
  EXPECT_THAT(ErrorOf("join_timeout"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(ErrorOf("join_timeout=1,join_timeout=2"), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf("is_host=maybe"), HasSubstr("is_host must be 0 or 1"));
  EXPECT_THAT(ErrorOf("keep_alive_max_attempt=1.5"), HasSubstr("keep_alive_max_attempt must be"));
  EXPECT_THAT(ErrorOf("store_type=file"), HasSubstr("store_type must be tcp"));
  EXPECT_THAT(ErrorOf("read_timeout=-1"), HasSubstr("read_timeout must be"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("KEY=VALUE"));
}

TEST(CoordinatorConf, OnlyTheHeartbeats_AreItsOwn) {
  const auto conf = ParseCoordinatorConf("heartbeat_timeout=2");
  ASSERT_TRUE(conf.ok()) << conf.status();
  EXPECT_EQ(conf->heartbeats->timeout, seconds(2));
  const absl::Status refused = ParseCoordinatorConf("join_timeout=2").status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("join_timeout is for the nodes of a job"));
  EXPECT_THAT(std::string(ParseCoordinatorConf("hartbeat_timeout=2").status().message()),
              HasSubstr("did you mean heartbeat_timeout?"));
}

}  // namespace
}  // namespace ddl::cli
