// Looking up names, with and without patience.
#include "launcher/net/name_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

#include "agent/base/unique_fd.h"

namespace ddl {
namespace {

using testing::HasSubstr;

const char* const kUnknown = "no-such-host.invalid";

TEST(LookUp, NameThatResolves_IsFoundWithoutPatience) {
  const auto found = LookUp("localhost", 7, Patience{});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(OwnerOf(*found), Owner::kLoopback);
}

TEST(LookUp, UnknownNameWithoutPatience_IsNotFound) {
  const auto found = LookUp(kUnknown, 7, Patience{});
  EXPECT_TRUE(absl::IsNotFound(found.status())) << found.status();
  EXPECT_THAT(std::string(found.status().message()), HasSubstr(kUnknown));
}

TEST(LookUp, WrongAddress_FailsAtOnceHoweverPatient) {
  Patience patience;
  patience.give_up_at = MonotonicNow() + std::chrono::hours(1);
  for (const char* const wrong : {"10.0.0.300", "1.2.3.4.5", "fe80::xyz", "::1::2"}) {
    const auto found = LookUp(wrong, 7, patience);
    EXPECT_TRUE(absl::IsNotFound(found.status())) << wrong << ": " << found.status();
  }
  EXPECT_TRUE(LookUp("::1", 7, patience).ok());
}

TEST(LookUp, StopWhileItWaits_IsCancelled) {
  const UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Patience patience;
  patience.give_up_at = MonotonicNow() + std::chrono::hours(1);
  patience.fd = fd.get();
  const auto wake = [&] {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(fd.get(), &one, sizeof one), ssize_t{sizeof one});
  };
  int asked = 0;
  patience.should_stop = [&] {
    std::uint64_t count = 0;
    EXPECT_EQ(::read(fd.get(), &count, sizeof count), ssize_t{sizeof count});
    wake();
    return ++asked == 2;  // the first one meant something else
  };
  wake();
  const auto found = LookUp(kUnknown, 7, patience);
  EXPECT_TRUE(absl::IsCancelled(found.status())) << found.status();
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace ddl
