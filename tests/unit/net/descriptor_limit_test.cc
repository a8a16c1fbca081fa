// The limit of open files: raised as far as needed, and shared out.
#include "launcher/descriptor_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "launcher/net/port_reservation.h"

namespace ddl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Only the soft limit is touched: whoever is no root cannot raise the hard one
// again.
class DescriptorLimit : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former_), 0); }
  void TearDown() override { ::setrlimit(RLIMIT_NOFILE, &former_); }
  void Allow(rlim_t count) const {
    const rlimit limit{count, former_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  static rlim_t Allowed() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }

 private:
  rlimit former_{};
};

TEST_F(DescriptorLimit, WhatWorkersNeed_IsRaisedTo) {
  Allow(60);
  EXPECT_TRUE(EnsureDescriptors({}).ok());
  EXPECT_EQ(Allowed(), 60);
  EXPECT_TRUE(EnsureDescriptors({.nproc = 8}).ok());
  const rlim_t for_eight = Allowed();
  EXPECT_GT(for_eight, 60);
  EXPECT_TRUE(EnsureDescriptors({.nproc = 8, .worker_ports = true}).ok());
  EXPECT_EQ(Allowed(), for_eight + 8);
}

TEST_F(DescriptorLimit, MoreThanTheHardLimit_IsRefusedWithBothNumbers) {
  constexpr std::int32_t kMany = 2'000'000'000;
  const auto status = EnsureDescriptors({.nproc = kMany});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2000000000 workers need 8000000048 open files"),
                    HasSubstr("the hard limit is"), HasSubstr("ulimit -Hn")));
}

TEST_F(DescriptorLimit, Store_GetsWhatTheOthersLeave) {
  Allow(1'000);
  const std::size_t alone = DescriptorsForStore({.nproc = 8});
  EXPECT_LT(alone, 1'000U - 64U);
  EXPECT_EQ(DescriptorsForStore({.nproc = 8, .worker_ports = true}), alone - 8);
  EXPECT_EQ(DescriptorsForStore({.nproc = 8, .nodes = 100}), alone - 100);
  // A bound on the nodes that nobody means: the store keeps its greater part.
  EXPECT_GE(DescriptorsForStore({.nproc = 8, .nodes = 100'000}), alone / 2);
  Allow(50);
  EXPECT_GT(DescriptorsForStore({.nproc = 8}), 0);
}

TEST_F(DescriptorLimit, PortThatNoDescriptorIsLeftFor_NamesTheLimit) {
  Allow(40);
  std::vector<PortReservation> held;
  auto reservation = PortReservation::Make();
  while (reservation.ok()) {
    held.push_back(*std::move(reservation));
    reservation = PortReservation::Make();
  }
  EXPECT_THAT(
      std::string(reservation.status().message()),
      AllOf(HasSubstr("no free TCP port"), HasSubstr("open files allowed: 40 (ulimit -n)")));
}

}  // namespace
}  // namespace ddl
