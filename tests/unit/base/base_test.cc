// The ground floor: ids, descriptors, status macros.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "agent/base/edit_distance.h"
#include "agent/base/host.h"
#include "agent/base/ids.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"

namespace ddl {
namespace {

TEST(NewRandomId, ManyCalls_AllDifferentHexadecimal) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = NewRandomId();
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000U);
}

TEST(EditDistance, Words_FewestChanges) {
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("same", "same"), 0U);
}

TEST(JoinHostPort, V6_GetsBrackets) {
  EXPECT_EQ(JoinHostPort("10.0.0.1", 29400), "10.0.0.1:29400");
  EXPECT_EQ(JoinHostPort("::1", 29400), "[::1]:29400");
}

bool IsOpen(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(UniqueFd, OutOfScope_Closes) {
  int fd = -1;
  {
    const UniqueFd owner(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    fd = owner.get();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(UniqueFd, Moved_HasOneOwner) {
  UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fd = first.get();
  UniqueFd second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(second.get(), fd);
  second = UniqueFd();
  EXPECT_FALSE(IsOpen(fd));
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) {
    return absl::InvalidArgumentError("odd");
  }
  return value / 2;
}

absl::Status QuarterInto(int value, int* out) {
  DDL_ASSIGN_OR_RETURN(const int half, Half(value));
  DDL_ASSIGN_OR_RETURN(*out, Half(half));
  DDL_RETURN_IF_ERROR(absl::OkStatus());
  return absl::OkStatus();
}

TEST(StatusMacros, ErrorInside_ReturnsIt) {
  int out = 0;
  EXPECT_TRUE(QuarterInto(8, &out).ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(QuarterInto(6, &out).message(), "odd");
}

}  // namespace
}  // namespace ddl
