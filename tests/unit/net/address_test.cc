// Addresses of this host.
#include "launcher/net/address.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

TEST(IsLoopbackLiteral, NamesAndAddresses_OnlyLoopbackNumbers) {
  EXPECT_TRUE(IsLoopbackLiteral("127.0.0.1"));
  EXPECT_TRUE(IsLoopbackLiteral("127.0.1.1"));
  EXPECT_TRUE(IsLoopbackLiteral("::1"));
  EXPECT_FALSE(IsLoopbackLiteral("localhost"));
  EXPECT_FALSE(IsLoopbackLiteral("127.evil.example"));
  EXPECT_FALSE(IsLoopbackLiteral("192.0.2.1"));
}

TEST(IsLocalhostName, OnlyLocalhostAndBelow_Are) {
  EXPECT_TRUE(IsLocalhostName("localhost"));
  EXPECT_TRUE(IsLocalhostName("a.localhost"));
  EXPECT_FALSE(IsLocalhostName("localhost.example"));
  EXPECT_FALSE(IsLocalhostName("mylocalhost"));
}

TEST(OwnerOf, LoopbackAddress_IsThisHostByLoopback) {
  EXPECT_EQ(OwnerOf(Resolve("127.0.0.1", 0).value()), Owner::kLoopback);
  EXPECT_EQ(OwnerOf(Resolve("127.0.1.1", 0).value()), Owner::kLoopback);
  EXPECT_EQ(OwnerOf(Resolve("localhost", 0).value()), Owner::kLoopback);
}

TEST(OwnerOf, OutwardAddress_IsThisHosts) {
  const std::string outward = OutwardAddress();
  if (outward.empty()) {
    GTEST_SKIP() << "this machine has only a loopback interface";
  }
  std::vector<SocketAddress> addresses = Resolve(outward, 0).value();
  EXPECT_EQ(OwnerOf(addresses), Owner::kThisHost);
  addresses.push_back(Resolve("127.0.0.1", 0).value().front());
  EXPECT_EQ(OwnerOf(addresses), Owner::kThisHost) << "not only by loopback";
}

TEST(OwnerOf, DocumentationAddress_IsAnothers) {
  EXPECT_EQ(OwnerOf(Resolve("192.0.2.77", 0).value()), Owner::kAnother);
}

TEST(Resolve, UnknownName_NamesIt) {
  const auto result = Resolve("no-such-host.invalid", 0);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("no-such-host.invalid"), std::string::npos);
}

TEST(LocalAddressTowards, LoopbackLiteral_IsLoopback) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1", Resolve("127.0.0.1", 29400).value()).value(),
            "127.0.0.1");
  EXPECT_TRUE(IsLoopbackLiteral(
      LocalAddressTowards("localhost", Resolve("localhost", 29400).value()).value()));
}

TEST(LocalAddressTowards, NameOfLoopback_IsTheOutwardAddress) {
  const std::string outward = OutwardAddress();
  const std::string given =
      LocalAddressTowards("node7", Resolve("127.0.1.1", 29400).value()).value();
  EXPECT_TRUE(given == outward || (outward.empty() && IsLoopbackLiteral(given))) << given;
}

}  // namespace
}  // namespace ddl
