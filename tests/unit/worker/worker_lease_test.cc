// The lease: workers end when the right to run them does, also when their
// ddlaunch is frozen and can do nothing about it.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/worker/worker_group.h"
#include "tests/support/group_harness.h"
#include "tests/support/processes.h"

namespace ddl {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::GroupHarness;
using test::LifeLine;
using test::ShellConfig;
using ::testing::SizeIs;

// A worker and a daemon of its own, deaf to all that can be ignored. Each writes
// one byte when it is ready, and holds the line open; the worker one more at
// each SIGUSR1.
const std::string kWorkerAndDaemon =
    "exec 9>$1; setsid sh -c 'trap \"\" TERM; echo -n d >&9; exec sleep 1000' & "
    "trap '' TERM INT HUP; trap 'echo -n u >&9' USR1; echo -n w >&9; "
    "while :; do sleep 0.02; done";

TEST(WorkerLease, Passes_AllTreesKilledAndReported) {
  LifeLine line;
  GroupHarness harness(ShellConfig(kWorkerAndDaemon, 3, {line.path()}));
  harness.group().SetLease(MonotonicNow() + hours(1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(6));
  EXPECT_FALSE(harness.group().lease_passed());
  harness.group().SetLease(MonotonicNow() + milliseconds(50));
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }));
  EXPECT_TRUE(harness.group().lease_passed());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
  ASSERT_THAT(harness.exits(), SizeIs(3));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(harness.exit_of(rank).term_signal, SIGKILL);
  }
}

TEST(WorkerLease, OwnerFrozen_WorkersDieAndAreReportedWhenItGoesOn) {
  LifeLine line;
  ASSERT_EQ(::setenv("GROUP_HOST_LEASE_MS", "3000", 1), 0);
  const pid_t host = test::StartHost({"2", "/bin/sh", "-c", kWorkerAndDaemon, "sh", line.path()});
  ::unsetenv("GROUP_HOST_LEASE_MS");
  ASSERT_TRUE(line.AwaitBytes(4));
  {
    const test::StoppedProcess stopped(host);
    EXPECT_TRUE(line.AwaitEnd(test::kPatience));
    EXPECT_EQ(::waitpid(host, nullptr, WNOHANG), 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(host, &status, 0), host);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
}

TEST(WorkerLease, RenewedWhileTheSupervisorDoesNotRun_WorkersLive) {
  Duration lease = milliseconds(300);
  for (;; lease *= 2) {
    LifeLine line;
    GroupHarness harness(ShellConfig(kWorkerAndDaemon, 1, {line.path()}));
    ASSERT_TRUE(harness.Start().ok());
    ASSERT_TRUE(line.AwaitBytes(2));
    const Instant until = MonotonicNow() + lease;
    harness.group().SetLease(until);
    harness.group().Forward(SIGUSR1);
    ASSERT_TRUE(line.AwaitBytes(3));  // the supervisor has read both
    {
      const test::StoppedProcess stopped(harness.supervisor_pid());
      if (MonotonicNow() >= until) {
        continue;  // this machine is slow today
      }
      harness.group().SetLease(until + hours(1));
      while (MonotonicNow() <= until) {
        ::poll(nullptr, 0, 10);
      }
    }
    harness.group().Forward(SIGUSR1);
    EXPECT_TRUE(line.AwaitBytes(4));
    EXPECT_FALSE(harness.group().lease_passed());
    return;
  }
}

TEST(WorkerLease, PassedBeforeTheStart_NoWorkerLivesUntilItIsRenewed) {
  GroupHarness harness(ShellConfig("[ $DDL_ROUND = 2 ] || exec sleep 1000", 4));
  harness.group().SetLease(MonotonicNow());
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_THAT(harness.exits(), SizeIs(4));
  EXPECT_EQ(harness.exit_of(3).term_signal, SIGKILL);
  EXPECT_TRUE(harness.group().lease_passed());
  harness.exits().clear();
  harness.group().SetLease(MonotonicNow() + hours(1));
  ASSERT_TRUE(harness.Start(2).ok());
  EXPECT_FALSE(harness.group().lease_passed());
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_THAT(harness.exits(), SizeIs(4));
  EXPECT_TRUE(harness.exit_of(3).ok());
}

TEST(WorkerLease, TakenBack_NoLimit) {
  LifeLine line;
  GroupHarness harness(ShellConfig(kWorkerAndDaemon, 1, {line.path()}));
  const Instant until = MonotonicNow() + milliseconds(1);
  {
    const test::StoppedProcess stopped(harness.supervisor_pid());
    harness.group().SetLease(until);
    harness.group().SetLease(Instant::max());
    ASSERT_TRUE(harness.Start().ok());
  }
  ASSERT_TRUE(line.AwaitBytes(2));
  harness.group().Forward(SIGUSR1);
  EXPECT_TRUE(line.AwaitBytes(3));
  EXPECT_GT(MonotonicNow(), until);
}

}  // namespace
}  // namespace ddl
