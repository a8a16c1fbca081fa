// The ground floor: ids, descriptors, status macros.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "agent/base/edit_distance.h"
#include "agent/base/file_io.h"
#include "agent/base/host.h"
#include "agent/base/ids.h"
#include "agent/base/signal_name.h"
#include "agent/base/size_text.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"

namespace ddl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
  EXPECT_EQ(EditDistance("wolrd", "world"), 1U);
  EXPECT_EQ(EditDistance("ca", "abc"), 3U);
}

constexpr std::array<std::string_view, 11> kNames = {"nnodes",
                                                     "nproc-per-node",
                                                     "tee",
                                                     "global-batch-size",
                                                     "micro-batch-size",
                                                     "max-micro-batch-size",
                                                     "grad-accum-steps",
                                                     "warmup-steps",
                                                     "warmup-ratio",
                                                     "warmup-start-lr",
                                                     "world"};

TEST(NearestNames, WordsOrTheirBeginnings_ComeBeforeLetters) {
  EXPECT_THAT(NearestNames("global-batch", kNames), ElementsAre("global-batch-size"));
  EXPECT_THAT(NearestNames("micro_batch", kNames), ElementsAre("micro-batch-size"));
  EXPECT_THAT(NearestNames("nproc", kNames), ElementsAre("nproc-per-node"));
  EXPECT_THAT(NearestNames("batch-size", kNames),
              ElementsAre("global-batch-size", "micro-batch-size"));
  EXPECT_THAT(NearestNames("max-batch-size", kNames), ElementsAre("max-micro-batch-size"));
  EXPECT_THAT(NearestNames("gradient_accumulation_steps", kNames), ElementsAre("grad-accum-steps"));
  EXPECT_THAT(NearestNames("warmup", kNames), ElementsAre("warmup-steps", "warmup-ratio"));
  EXPECT_THAT(NearestNames("world-size", kNames), ElementsAre("world"));
  EXPECT_THAT(NearestNames("start-lr", kNames), ElementsAre("warmup-start-lr"));
}

TEST(NearestNames, Slips_AreAThirdOfTheLettersAtMost) {
  EXPECT_THAT(NearestNames("nndoes", kNames), ElementsAre("nnodes"));
  EXPECT_THAT(NearestNames("wordl", kNames), ElementsAre("world"));
  EXPECT_THAT(NearestNames("te", kNames), ElementsAre("tee"));
  // Also where the slip leaves a whole name in it.
  constexpr std::array<std::string_view, 2> kTimeouts = {"timeout", "heartbeat_timeout"};
  EXPECT_THAT(NearestNames("hartbeat_timeout", kTimeouts), ElementsAre("heartbeat_timeout"));
  for (const char* const other :
       {"seed", "size", "momentum", "learning-rate-decay", "t", "", "-", "--"}) {
    EXPECT_THAT(NearestNames(other, kNames), IsEmpty()) << other;
  }
  EXPECT_THAT(NearestNames("nnodes", {}), IsEmpty());
}

TEST(DidYouMean, Names_AreThreeAtMost) {
  EXPECT_EQ(DidYouMean({}), "");
  EXPECT_EQ(DidYouMean(std::span(kNames).first(1), "--"), "; did you mean --nnodes?");
  EXPECT_EQ(DidYouMean(kNames), "; did you mean nnodes, nproc-per-node or tee?");
}

TEST(JoinHostPort, V6_GetsBrackets) {
  EXPECT_EQ(JoinHostPort("10.0.0.1", 29400), "10.0.0.1:29400");
  EXPECT_EQ(JoinHostPort("::1", 29400), "[::1]:29400");
}

TEST(SignalName, KnownAndUnknown_Text) {
  EXPECT_EQ(SignalName(11), "SIGSEGV");
  EXPECT_EQ(SignalName(63), "signal 63");
}

TEST(SizeText, Bytes_InTheLargestUnit) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(std::int64_t{64} << 20U), "64.0 MiB");
  EXPECT_EQ(SizeText(std::int64_t{3} << 50U), "3072.0 TiB");
}

TEST(FileIo, WrittenAndReadBack_AllUpToTheBound) {
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  const std::string bytes(100'000, 'x');
  ASSERT_EQ(WriteAll(fd.get(), bytes), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  EXPECT_EQ(ReadFileUpTo(path, 1U << 20U), bytes);
  EXPECT_EQ(ReadFileUpTo(path, 5000), bytes.substr(0, 5000));
  EXPECT_EQ(ReadFileUpTo("/nonexistent", 1), std::nullopt);
}

TEST(FileIo, NoReaderOrDescriptor_Errno) {
  EXPECT_EQ(WriteAll(-1, "x"), EBADF);
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(WriteAll(full.get(), "x"), ENOSPC);
  EXPECT_EQ(ReadUpTo(-1, 10), "");
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
