// Replies on their way: their order, and what they cost meanwhile.
#include "launcher/tcpstore/out_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

namespace ddl::tcpstore {
namespace {

// Takes at most `count` bytes, as a socket would.
std::string Drain(OutBuffer& buffer, std::size_t count) {
  std::string taken;
  while (taken.size() < count && !buffer.empty()) {
    const std::string_view front = buffer.front();
    const std::size_t some = std::min(front.size(), count - taken.size());
    taken += front.substr(0, some);
    buffer.Take(some);
  }
  return taken;
}

TEST(OutBuffer, SmallAndSharedValues_LeaveInOrder) {
  OutBuffer buffer;
  const auto large = std::make_shared<const std::string>(100 * kKib, 'x');
  buffer.tail() += "before";
  buffer.AddValue(large);
  buffer.tail() += "after";
  EXPECT_EQ(large.use_count(), 2);
  const std::size_t size = buffer.size();
  std::string got = Drain(buffer, 3);
  got += Drain(buffer, size);
  EXPECT_EQ(got.size(), size);
  EXPECT_TRUE(got.starts_with("before"));
  EXPECT_TRUE(got.ends_with("xafter"));
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(large.use_count(), 1);
}

TEST(OutBuffer, ClientThatIsAlwaysALittleBehind_DoesNotMakeItGrow) {
  OutBuffer buffer;
  const auto value = std::make_shared<const std::string>(16 * kKib - 1, 'v');
  const std::size_t reply = sizeof(std::int64_t) + value->size();
  constexpr std::size_t kBehind = 100;
  buffer.tail().assign(kBehind, 'b');
  for (int i = 0; i < 10'000; ++i) {
    buffer.AddValue(value);
    EXPECT_EQ(Drain(buffer, reply).size(), reply);
    ASSERT_EQ(buffer.size(), kBehind);
    ASSERT_LT(buffer.tail().capacity(), 256 * kKib);
  }
}

}  // namespace
}  // namespace ddl::tcpstore
