// Descendants of a real little tree, found both ways.
#include "launcher/worker/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddl {
namespace {

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
  EXPECT_EQ(KillDescendants(::getpid()), 3U);
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  child_ = -1;
}

TEST(Descendants, Leaf_None) {
  EXPECT_TRUE(Descendants(::getpid()).empty());
  EXPECT_TRUE(DescendantsByScan(::getpid()).empty());
  EXPECT_TRUE(Descendants(0x7FFFFFFF).empty());
}

}  // namespace
}  // namespace ddl
