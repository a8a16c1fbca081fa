// Checkpoints: round trips, damage, pruning, and kill -9 at any moment.
#include "ddl/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/sdk/world.h"
#include "worker_sdk/src/checkpoint_format.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CheckpointState StateAt(std::int64_t step, std::size_t size = 100) {
  CheckpointState state;
  state.step = step;
  state.tensors["weights"] = std::vector<float>(size, static_cast<float>(step));
  state.tensors["empty"] = {};
  state.integers["epoch"] = step / 10;
  state.integers["negative"] = -1;
  state.reals["loss"] = 0.1 * static_cast<double>(step);
  return state;
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ddl-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  [[nodiscard]] std::string Newest() const { return (fs::path(root_) / Names().back()).string(); }

  std::string root_;
};

TEST_F(CheckpointTest, EmptyOrMissingDirectory_HasNone) {
  const auto empty = CheckpointDirectory(root_).LoadLatest();
  ASSERT_TRUE(empty.ok());
  EXPECT_FALSE(empty->has_value());
  const auto missing = CheckpointDirectory(root_ + "/not/there").LoadLatest();
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->has_value());
}

TEST_F(CheckpointTest, SavedState_LoadsEqual) {
  const CheckpointDirectory directory(root_ + "/made/by/save");
  ASSERT_TRUE(directory.Save(StateAt(7)).ok());
  EXPECT_EQ(**directory.LoadLatest(), StateAt(7));
}

TEST_F(CheckpointTest, ManySaves_NewestLoadsAndTheLastFewAreKept) {
  const CheckpointDirectory directory(root_, 2);
  // 9 to 10: the order of names must be that of numbers.
  for (const std::int64_t step : {8, 9, 10, 11}) {
    ASSERT_TRUE(directory.Save(StateAt(step)).ok());
    EXPECT_EQ((*directory.LoadLatest())->step, step);
  }
  EXPECT_THAT(Names(),
              ElementsAre("step-00000000000000000010.ckpt", "step-00000000000000000011.ckpt"));
}

TEST_F(CheckpointTest, SameStepAgain_ReplacesIt) {
  const CheckpointDirectory directory(root_);
  ASSERT_TRUE(directory.Save(StateAt(5)).ok());
  CheckpointState other = StateAt(5);
  other.integers["epoch"] = 99;
  ASSERT_TRUE(directory.Save(other).ok());
  EXPECT_THAT(Names(), SizeIs(1));
  EXPECT_EQ(**directory.LoadLatest(), other);
}

TEST_F(CheckpointTest, LeftOverTemporary_IsNeverLoadedAndGoesWithTheNextSave) {
  const CheckpointDirectory directory(root_);
  const std::string left = root_ + "/step-00000000000000000009.ckpt.0123.tmp";
  std::ofstream(left) << internal::EncodeCheckpoint(StateAt(9));
  EXPECT_FALSE(directory.LoadLatest()->has_value());
  ASSERT_TRUE(directory.Save(StateAt(3)).ok());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ((*directory.LoadLatest())->step, 3);
}

TEST_F(CheckpointTest, DamagedFilesOfLaterSteps_DoNotPushOutNewOnes) {
  for (const char* name : {"step-00000000000000001000.ckpt", "step-00000000000000001001.ckpt"}) {
    std::ofstream(root_ + "/" + name) << "junk";
  }
  const CheckpointDirectory directory(root_, 2);
  for (const std::int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(directory.Save(StateAt(step)).ok());
    EXPECT_EQ((*directory.LoadLatest())->step, step);
  }
}

TEST_F(CheckpointTest, ForeignFiles_AreLeftAlone) {
  std::ofstream(root_ + "/notes.txt") << "mine";
  std::ofstream(root_ + "/step-1.ckpt") << "mine";
  const CheckpointDirectory directory(root_, 1);
  ASSERT_TRUE(directory.Save(StateAt(1)).ok());
  ASSERT_TRUE(directory.Save(StateAt(2)).ok());
  EXPECT_TRUE(fs::exists(root_ + "/notes.txt"));
  EXPECT_TRUE(fs::exists(root_ + "/step-1.ckpt"));
  EXPECT_EQ((*directory.LoadLatest())->step, 2);
}

TEST_F(CheckpointTest, TruncatedAnywhere_TheOlderOneLoadsWithAWarning) {
  const CheckpointDirectory directory(root_);
  ASSERT_TRUE(directory.Save(StateAt(1)).ok());
  ASSERT_TRUE(directory.Save(StateAt(2)).ok());
  const auto whole = fs::file_size(Newest());
  for (std::uintmax_t length = whole; length-- > 0;) {
    fs::resize_file(Newest(), length);
    std::vector<std::string> warnings;
    const auto loaded = directory.LoadLatest(&warnings);
    ASSERT_TRUE(loaded.ok());
    ASSERT_EQ((*loaded)->step, 1) << length;
    ASSERT_THAT(warnings, ElementsAre(HasSubstr("is passed over")));
  }
}

TEST_F(CheckpointTest, AnyByteChanged_IsNoticed) {
  const std::string bytes = internal::EncodeCheckpoint(StateAt(2, 3));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_EQ(internal::DecodeCheckpoint(damaged).status().code(), absl::StatusCode::kDataLoss)
        << i;
  }
  EXPECT_FALSE(internal::DecodeCheckpoint(bytes + "x").ok());
  EXPECT_TRUE(internal::DecodeCheckpoint(bytes).ok());
}

TEST_F(CheckpointTest, AllDamaged_IsNoneWithAWarningForEach) {
  std::ofstream(root_ + "/step-00000000000000000001.ckpt") << "";
  std::ofstream(root_ + "/step-00000000000000000002.ckpt") << "DDLCKPT1";
  std::vector<std::string> warnings;
  EXPECT_FALSE(CheckpointDirectory(root_).LoadLatest(&warnings)->has_value());
  EXPECT_THAT(warnings, SizeIs(2));
}

TEST_F(CheckpointTest, UnwritableDirectory_SaysWhich) {
  std::ofstream(root_ + "/file") << "in the way";
  const absl::Status status = CheckpointDirectory(root_ + "/file").Save(StateAt(1));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(root_ + "/file"));
  EXPECT_FALSE(CheckpointDirectory(root_).Save(StateAt(-1)).ok());
}

// Saves step after step in a child, until it is killed. It writes each step's
// number into `done` once its save has returned.
[[noreturn]] void SaveForEver(const std::string& root, int done, std::int64_t first) {
  const CheckpointDirectory directory(root);
  for (std::int64_t step = first;; ++step) {
    if (!directory.Save(StateAt(step, 50'000)).ok() ||
        ::write(done, &step, sizeof(step)) != sizeof(step)) {
      ::_exit(1);
    }
  }
}

TEST_F(CheckpointTest, KilledAtAnyMoment_TheLastSavedIsThere) {
  constexpr int kKills = 40;
  std::mt19937 random(1);
  std::int64_t last = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ends[0]);
      SaveForEver(root_, ends[1], last + 1);
    }
    ::close(ends[1]);
    // Some saves are through, then the kill comes somewhere in the next ones.
    std::int64_t step = 0;
    const int saves = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < saves; ++i) {
      ASSERT_EQ(::read(ends[0], &step, sizeof(step)), static_cast<ssize_t>(sizeof(step)));
    }
    for (unsigned spin = random() % 400'000; spin > 0; --spin) {
      asm volatile("" ::: "memory");
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (::read(ends[0], &step, sizeof(step)) == static_cast<ssize_t>(sizeof(step))) {
    }
    ::close(ends[0]);
    std::vector<std::string> warnings;
    const auto loaded = CheckpointDirectory(root_).LoadLatest(&warnings);
    ASSERT_TRUE(loaded.ok() && loaded->has_value());
    ASSERT_THAT(warnings, IsEmpty());
    // The one whose save had returned, or the one after it.
    ASSERT_GE((*loaded)->step, step);
    ASSERT_LE((*loaded)->step, step + 1);
    ASSERT_EQ(**loaded, StateAt((*loaded)->step, 50'000));
    last = (*loaded)->step;
  }
}

TEST_F(CheckpointTest, Restore_EveryRankGetsWhatRankZeroSees) {
  ASSERT_TRUE(CheckpointDirectory(root_).Save(StateAt(4)).ok());
  testing::Meeting meeting(3);
  testing::OnEveryRank(3, [&](int rank) {
    testing::ThreadBackend backend(&meeting, rank);
    // The others have no such directory: another host's disk.
    const CheckpointDirectory directory(rank == 0 ? root_ : root_ + "/elsewhere");
    const auto restored = RestoreOnAllRanks(backend, directory);
    ASSERT_TRUE(restored.ok()) << restored.status();
    ASSERT_TRUE(restored->has_value());
    EXPECT_EQ(**restored, StateAt(4));
  });
}

TEST_F(CheckpointTest, Restore_NothingAndErrorsAreTheSameOnEveryRank) {
  std::ofstream(root_ + "/file") << "in the way";
  testing::Meeting meeting(2);
  testing::OnEveryRank(2, [&](int rank) {
    testing::ThreadBackend backend(&meeting, rank);
    const auto none = RestoreOnAllRanks(backend, CheckpointDirectory(root_ + "/none"));
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
    const auto error = RestoreOnAllRanks(
        backend, CheckpointDirectory(rank == 0 ? root_ + "/file" : root_ + "/none"));
    EXPECT_FALSE(error.ok());
    EXPECT_THAT(std::string(error.status().message()), HasSubstr(root_ + "/file"));
  });
}

}  // namespace
}  // namespace ddl
