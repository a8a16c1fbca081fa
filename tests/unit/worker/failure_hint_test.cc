// Hints, and the facts they are made from.
#include "launcher/failures/failure_hint.h"

#include <csignal>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/failures/out_of_memory.h"

namespace ddl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

MemoryFacts Facts(std::int64_t group_kills, std::int64_t host_kills) {
  MemoryFacts facts;
  facts.group_oom_kills = group_kills;
  facts.host_oom_kills = host_kills;
  return facts;
}

std::string ForSignal(int signal, const MemoryFacts& before = {}, const MemoryFacts& after = {}) {
  return FailureHint({0, signal, ""}, before, after);
}

TEST(FailureHint, KilledWhileTheGroupsCounterRose_SaidForSureWithTheLimit) {
  MemoryFacts after = Facts(3, 9);
  after.group_limit_bytes = 512 * kMiB;
  EXPECT_THAT(ForSignal(SIGKILL, Facts(2, 8), after),
              AllOf(StartsWith("The out-of-memory killer"), HasSubstr("counts 1 such kill in"),
                    HasSubstr("limit is 512.0 MiB")));
}

TEST(FailureHint, KilledWhileOnlyTheHostsCounterRose_Probably) {
  EXPECT_THAT(ForSignal(SIGKILL, Facts(0, 1), Facts(0, 3)),
              AllOf(StartsWith("Probably the out-of-memory killer"), HasSubstr("2 such kills")));
}

TEST(FailureHint, KilledAndNoCounterRose_SomebodyElse) {
  EXPECT_THAT(ForSignal(SIGKILL, Facts(5, 7), Facts(5, 7)), StartsWith("Not the kernel's"));
}

TEST(FailureHint, KilledAndNothingIsKnown_AQuestion) {
  EXPECT_THAT(ForSignal(SIGKILL), StartsWith("Was it the out-of-memory killer?"));
}

TEST(FailureHint, BusError_NamesTheSharedMemory) {
  EXPECT_THAT(ForSignal(SIGBUS), HasSubstr("--shm-size"));
  MemoryFacts full;
  full.shm_bytes = 64 * kMiB;
  full.shm_free_bytes = 4096;
  EXPECT_THAT(ForSignal(SIGBUS, {}, full),
              AllOf(StartsWith("/dev/shm has 64.0 MiB, of which 4.0 KiB are free"),
                    HasSubstr("--shm-size")));
  full.shm_free_bytes = full.shm_bytes;
  EXPECT_THAT(ForSignal(SIGBUS, {}, full), AllOf(HasSubstr("64.0 MiB"), HasSubstr("mapped file")));
}

TEST(FailureHint, ShellsExitCodes_AreExplained) {
  const auto for_code = [](int code) { return FailureHint({code, 0, ""}, {}, {}); };
  EXPECT_THAT(for_code(127), HasSubstr("not found"));
  EXPECT_THAT(for_code(126), HasSubstr("cannot be executed"));
  EXPECT_THAT(for_code(137), AllOf(HasSubstr("SIGKILL"), HasSubstr("out-of-memory")));
  EXPECT_THAT(for_code(139), HasSubstr("SIGSEGV"));
  for (const int code : {0, 1, 3, 128, 143, 255}) {
    EXPECT_EQ(for_code(code), "") << code;
  }
}

TEST(FailureHint, KnownWords_SayWhatToDo) {
  const auto for_text = [](const char* text) { return FailureHint({1, 0, text}, {}, {}); };
  EXPECT_THAT(for_text("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
              HasSubstr("micro-batch"));
  EXPECT_THAT(for_text("ncclSystemError: System call (e.g. socket, malloc) failed"),
              HasSubstr("NCCL_DEBUG=INFO"));
  EXPECT_THAT(for_text("ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
                       "Cuda failure 2 'out of memory'"),
              HasSubstr("micro-batch"));
  EXPECT_THAT(for_text("misc/strongstream.cc:53 NCCL WARN Cuda failure 'out of memory'"),
              HasSubstr("micro-batch"));
  EXPECT_THAT(for_text("ncclUnhandledCudaError: Call to CUDA function failed."),
              AllOf(HasSubstr("NCCL_DEBUG=INFO"), HasSubstr("driver"), HasSubstr("memory"),
                    Not(HasSubstr("NCCL_SOCKET_IFNAME"))));
  EXPECT_THAT(for_text("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error."),
              HasSubstr("/dev/shm"));
  EXPECT_EQ(for_text("ValueError: bad"), "");
}

TEST(FailureHint, PyTorchsNumbers_TellAShortageFromFragmentation) {
  const std::string fragmented = FailureHint(
      {1, 0,
       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 "
       "GiB total capacity; 10.00 GiB already allocated; 512.00 MiB free; 14.50 GiB reserved in "
       "total by PyTorch)"},
      {}, {});
  EXPECT_THAT(fragmented, AllOf(HasSubstr("2.0 GiB asked for"), HasSubstr("fragmentation:")));
  EXPECT_LT(fragmented.find("expandable_segments"), fragmented.find("mixed precision"));
  EXPECT_LT(fragmented.find("mixed precision"), fragmented.find("--max-micro-batch-size"));
  const std::string shortage = FailureHint(
      {1, 0,
       "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.78 GiB of "
       "which 300.00 MiB is free. Including non-PyTorch memory, this process has 15.40 GiB memory "
       "in use. Of the allocated memory 14.90 GiB is allocated by PyTorch, and 120.00 MiB is "
       "reserved by PyTorch but unallocated."},
      {}, {});
  EXPECT_THAT(shortage, AllOf(HasSubstr("14.9 GiB in use"), HasSubstr("a shortage:")));
}

TEST(EndedOutOfMemory, ExitCodesAndKnownWords_AreRecognised) {
  const std::set<std::int32_t> codes = {77};
  EXPECT_TRUE(EndedOutOfMemory({77, 0, ""}, codes));
  EXPECT_TRUE(EndedOutOfMemory({1, 0, "RuntimeError: CUDA out of memory."}, codes));
  EXPECT_TRUE(EndedOutOfMemory({1, 0, "HIP out of memory. Tried"}, codes));
  EXPECT_TRUE(EndedOutOfMemory({1, 0, "RESOURCE_EXHAUSTED: Out of memory while trying"}, codes));
  EXPECT_TRUE(EndedOutOfMemory({1, 0, "OOM when allocating tensor with shape[8,64]"}, codes));
  EXPECT_TRUE(EndedOutOfMemory({0, SIGABRT, "what():  CUDA error: out of memory"}, codes));
  for (const char* const text :
       {"cudaMalloc failed: out of memory", "CUDA runtime error: out of memory\nexiting",
        "epoch 1\nCUDA error at layers.cu:42: out of memory.\r",
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  out of memory"}) {
    EXPECT_TRUE(EndedOutOfMemory({1, 0, text}, codes)) << text;
  }
}

TEST(EndedOutOfMemory, OtherEnds_AreNot) {
  const std::set<std::int32_t> codes = {77};
  EXPECT_FALSE(EndedOutOfMemory({1, 0, "ValueError: out of range"}, codes));
  // The host's, a log's, anybody's.
  for (const char* const text :
       {"out of memory", "recovered from out of memory", "cuda: recovered from out of memory",
        "kernel: Out of memory: Killed process 12 (cuda_train)",
        "cuda cache: out of memory events: 0", "sqlite: out of memory",
        "mmap failed: out of memory\ncuda is fine"}) {
    EXPECT_FALSE(EndedOutOfMemory({1, 0, text}, codes)) << text;
  }
  EXPECT_FALSE(EndedOutOfMemory({0, 0, "CUDA out of memory; went on without"}, codes));
  EXPECT_FALSE(EndedOutOfMemory({0, SIGKILL, "CUDA out of memory"}, codes))
      << "the kernel's, or somebody's";
  EXPECT_FALSE(EndedOutOfMemory({77, SIGTERM, ""}, codes));
}

TEST(EndedOutOfMemory, SignalsCodeOfAShell_IsASignalsToo) {
  const std::set<std::int32_t> codes = {137};
  EXPECT_TRUE(EndedOutOfMemory({0, SIGKILL, ""}, codes));
  EXPECT_TRUE(EndedOutOfMemory({137, 0, ""}, codes));
  EXPECT_FALSE(EndedOutOfMemory({0, SIGTERM, ""}, codes));
}

TEST(FailureHint, KillWithOldWordsOnStderr_IsAboutTheKill) {
  EXPECT_THAT(FailureHint({0, SIGKILL, "warning: Too many open files"}, {}, {}),
              Not(HasSubstr("ulimit")));
}

TEST(NumberAfter, LinesOfNumbers_TheOneOfThatName) {
  EXPECT_EQ(NumberAfter("low 0\noom 7\noom_kill 3\noom_group_kill 1\n", "oom_kill"), 3);
  EXPECT_EQ(NumberAfter("oom_kill_disable 0\nunder_oom 0\noom_kill 12", "oom_kill"), 12);
  EXPECT_EQ(NumberAfter("oom_kill_disable 0\n", "oom_kill"), std::nullopt);
  EXPECT_EQ(NumberAfter("oom_kill x\n", "oom_kill"), std::nullopt);
  EXPECT_EQ(NumberAfter("", "oom_kill"), std::nullopt);
}

TEST(FindMemoryGroup, BothVersions_TheOneThatCountsMemory) {
  const auto v1 = FindMemoryGroup("5:devices:/\n4:cpu,memory:/jobs/7\n0::/x\n");
  ASSERT_TRUE(v1.has_value());
  EXPECT_TRUE(v1->v1);
  EXPECT_EQ(v1->path, "/jobs/7");
  const auto v2 = FindMemoryGroup("0::/user.slice/a:b\n");
  ASSERT_TRUE(v2.has_value());
  EXPECT_FALSE(v2->v1);
  EXPECT_EQ(v2->path, "/user.slice/a:b");
  EXPECT_FALSE(FindMemoryGroup("no lines of that kind\n").has_value());
}

}  // namespace
}  // namespace ddl
