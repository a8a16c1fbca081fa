// Which tokens are the same.
#include "agent/service/token.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

TEST(TokenMatches, OnlyTheSame_Matches) {
  EXPECT_TRUE(TokenMatches("secret", "secret"));
  for (const char* const other : {"", "s", "secre", "secrets", "Secret", "secreT", "xxxxxx"}) {
    EXPECT_FALSE(TokenMatches("secret", other)) << other;
  }
  EXPECT_FALSE(TokenMatches("secret", std::string("secret\0", 7)));
  EXPECT_FALSE(TokenMatches("secret", std::string(1'000'000, 's')));
}

}  // namespace
}  // namespace ddl
