// Who hosts the rendezvous, and where the others find it.
#include "launcher/net/meeting_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "agent/base/host.h"
#include "agent/store/memory_store.h"

namespace ddl {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const char* const kUnknown = "no-such-host.invalid";

// See tests/support/test_agent.h: gRPC's last server must not go.
void KeepGrpcUp() {
  static const Coordinator* const keeper =
      Coordinator::Start({}, std::make_unique<store::MemoryStore>())->release();
  EXPECT_NE(keeper, nullptr);
}

std::unique_ptr<Coordinator> Standing() {
  KeepGrpcUp();
  return *Coordinator::Start({}, std::make_unique<store::MemoryStore>());
}

LaunchConfig TwoNodes(const std::string& host, std::uint16_t port) {
  KeepGrpcUp();
  LaunchConfig config;
  config.min_nodes = config.max_nodes = 2;
  config.backend = RdzvBackend::kDynamic;
  config.endpoint_host = host;
  config.endpoint_port = port;
  return config;
}

TEST(MeetingPlace, OneNodeWithoutEndpoint_HostsOnLoopback) {
  KeepGrpcUp();
  const auto place = FindMeetingPlace(LaunchConfig{}, {}, nullptr);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_NE(place->coordinator, nullptr);
  EXPECT_THAT(place->endpoint, StartsWith("127.0.0.1:"));
  EXPECT_FALSE(place->is_open_to_network);
}

TEST(MeetingPlace, StandingCoordinatorOfThisHost_IsJoinedAsAClient) {
  const auto standing = Standing();
  LaunchConfig config = TwoNodes("127.0.0.1", standing->port());
  for (const RdzvBackend backend : {RdzvBackend::kDynamic, RdzvBackend::kStatic}) {
    config.backend = backend;
    config.node_rank = 0;
    const auto place = FindMeetingPlace(config, {}, nullptr);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->coordinator, nullptr);
    EXPECT_TRUE(place->port_was_taken);
    EXPECT_EQ(place->endpoint, JoinHostPort("127.0.0.1", standing->port()));
  }
}

TEST(MeetingPlace, ToldToHostWhereThePortIsTaken_IsAnError) {
  const auto standing = Standing();
  LaunchConfig config = TwoNodes("127.0.0.1", standing->port());
  config.is_host = true;
  EXPECT_TRUE(absl::IsAlreadyExists(FindMeetingPlace(config, {}, nullptr).status()));
  config.is_host = false;
  const auto place = FindMeetingPlace(config, {}, nullptr);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_FALSE(place->port_was_taken) << "it was not tried";
}

TEST(MeetingPlace, UnknownName_IsNotFoundUnlessToldToHost) {
  LaunchConfig config = TwoNodes(kUnknown, 29400);
  const auto place = FindMeetingPlace(config, {}, nullptr);
  EXPECT_TRUE(absl::IsNotFound(place.status())) << place.status();
  EXPECT_THAT(std::string(place.status().message()), HasSubstr(kUnknown));

  // A cluster's name for this very host may come only when it answers.
  config.is_host = true;
  config.endpoint_port = 0;
  const auto host = FindMeetingPlace(config, {}, nullptr);
  if (OutwardAddress().empty()) {
    GTEST_SKIP() << "this machine has only a loopback interface";
  }
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_NE(host->coordinator, nullptr);
  EXPECT_EQ(host->own_address, OutwardAddress());
}

TEST(MeetingPlace, LoopbackByItsOwnName_HasNoHint) {
  for (const char* const host : {"127.0.0.1", "localhost"}) {
    LaunchConfig config = TwoNodes(host, 0);
    const auto place = FindMeetingPlace(config, {}, nullptr);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->hint, "");
    EXPECT_FALSE(place->is_open_to_network);
  }
}

TEST(MeetingPlace, OpenToNetwork_UnlessThereIsAToken) {
  LaunchConfig config = TwoNodes("0.0.0.0", 0);
  config.is_host = true;
  config.local_addr = "127.0.0.1";
  EXPECT_TRUE(FindMeetingPlace(config, {}, nullptr)->is_open_to_network);
  config.rdzv_token = "secret";
  EXPECT_FALSE(FindMeetingPlace(config, {}, nullptr)->is_open_to_network);
}

}  // namespace
}  // namespace ddl
