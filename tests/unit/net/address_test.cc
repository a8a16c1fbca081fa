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

TEST(IsOwnAddress, Loopback_IsOwn) {
  EXPECT_TRUE(IsOwnAddress("127.0.0.1").value());
  EXPECT_TRUE(IsOwnAddress("localhost").value());
}

TEST(IsOwnAddress, DocumentationAddress_IsNot) {
  EXPECT_FALSE(IsOwnAddress("192.0.2.77").value());
}

TEST(IsOwnAddress, UnknownName_NamesIt) {
  const auto result = IsOwnAddress("no-such-host.invalid");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("no-such-host.invalid"), std::string::npos);
}

TEST(LocalAddressTowards, LoopbackLiteral_IsLoopback) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1", 29400).value(), "127.0.0.1");
  EXPECT_TRUE(IsLoopbackLiteral(LocalAddressTowards("localhost", 29400).value()));
}

}  // namespace
}  // namespace ddl
