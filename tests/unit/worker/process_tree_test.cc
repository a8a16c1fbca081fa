// Descendants of a real little tree, found both ways.
#include "launcher/process/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/tree_killer.h"

namespace ddl {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

// This process -> child -> two grandchildren; all sleep.
class ProcessTreeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_NAME, "a) R 1 (b");  // what /proc/<pid>/stat may hold
      for (int i = 0; i < 2; ++i) {
        const pid_t grandchild = ::fork();
        if (grandchild == 0) {
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
          for (;;) {
            ::pause();
          }
        }
        [[maybe_unused]] const ssize_t n = ::write(ends[1], &grandchild, sizeof(grandchild));
      }
      for (;;) {
        ::pause();
      }
    }
    pids_ = {child_};
    for (int i = 0; i < 2; ++i) {
      pid_t pid = 0;
      ASSERT_EQ(::read(ends[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
      pids_.push_back(pid);
    }
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void TearDown() override {
    if (child_ > 0) {
      // Each by its pid: a grandchild may not have come to its prctl yet.
      for (const pid_t pid : pids_) {
        ::kill(pid, SIGKILL);
      }
      ::waitpid(child_, nullptr, 0);
    }
  }

  pid_t child_ = -1;
  std::vector<pid_t> pids_;
};

TEST_F(ProcessTreeTest, Descendants_AllParentsFirst) {
  const std::vector<pid_t> found = Descendants(::getpid());
  EXPECT_THAT(found, UnorderedElementsAreArray(pids_));
  EXPECT_EQ(found.front(), child_);
}

TEST_F(ProcessTreeTest, DescendantsByScan_TheSame) {
  const std::vector<pid_t> found = DescendantsByScan(::getpid());
  EXPECT_THAT(found, UnorderedElementsAreArray(pids_));
  EXPECT_EQ(found.front(), child_);
}

TEST_F(ProcessTreeTest, KillDescendants_AllGetSigkill) {
  EXPECT_THAT(KillDescendants(::getpid()), UnorderedElementsAreArray(pids_));
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  child_ = -1;
}

TEST_F(ProcessTreeTest, StateOf_SleepsThenDeadThenNone) {
  EXPECT_THAT(StateOf(child_), AnyOf('S', 'R'));
  ::kill(child_, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(StateOf(child_), 'Z');
  ASSERT_EQ(::waitpid(child_, nullptr, 0), child_);
  EXPECT_EQ(StateOf(child_), '?');
  child_ = -1;
  for (const pid_t pid : pids_) {
    if (pid != pids_.front()) {
      ::kill(pid, SIGKILL);
    }
  }
}

// A child that is dead and not reaped stands for one that does not die: it is
// there after SIGKILL.
TEST(TreeKiller, OneDoesNotDie_LooksLessOftenThenGivesUpAndNeverWaitsForItAgain) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      ::pause();
    }
  }
  const Instant begin{};
  Instant now = begin;
  TreeKiller killer;
  killer.Begin(now, seconds(5));
  std::vector<std::int64_t> waits_ms;
  TreeKiller::Result result = killer.Continue(now);
  while (result == TreeKiller::Result::kGoesOn) {
    waits_ms.push_back(
        std::chrono::duration_cast<std::chrono::milliseconds>(killer.next_look() - now).count());
    now = killer.next_look();
    result = killer.Continue(now);
  }
  EXPECT_EQ(result, TreeKiller::Result::kGivenUp);
  EXPECT_FALSE(killer.active());
  EXPECT_EQ(now - begin, seconds(5));
  EXPECT_THAT(waits_ms, ElementsAre(10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 730));
  EXPECT_THAT(killer.just_left(), ElementsAre(child));

  killer.Begin(now, seconds(5));
  EXPECT_EQ(killer.Continue(now), TreeKiller::Result::kNobody);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(Descendants, Leaf_None) {
  EXPECT_TRUE(Descendants(::getpid()).empty());
  EXPECT_TRUE(DescendantsByScan(::getpid()).empty());
  EXPECT_TRUE(Descendants(0x7FFFFFFF).empty());
}

}  // namespace
}  // namespace ddl
