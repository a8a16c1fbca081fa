// The workers' output, from real processes to files and consoles.
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/worker/worker_group.h"
#include "tests/support/group_harness.h"

namespace ddl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::GroupHarness;
using test::LifeLine;
using test::Lines;
using test::ReadPath;
using test::ShellConfig;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

TEST(WorkerLogs, TwoHundredLinesThenSigkill_AllShown) {
  GroupHarness harness(
      ShellConfig("for i in $(seq 200); do echo line $i; done; kill -9 $$; sleep 60", 2));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(Lines(harness.out()), SizeIs(400));
  EXPECT_THAT(harness.out(),
              AllOf(HasSubstr("[default0]:line 200\n"), HasSubstr("[default1]:line 200\n")));
  EXPECT_EQ(harness.exit_of(0).term_signal, SIGKILL);
}

TEST(WorkerLogs, ExitReported_ItsLinesAreWithTheConsole) {
  GroupHarness harness(ShellConfig("echo last; [ $LOCAL_RANK = 0 ] || exec sleep 1000", 2));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }));
  harness.group().FlushConsole(test::kPatience);
  EXPECT_THAT(harness.out(), HasSubstr("[default0]:last\n"));
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle());
}

// The descriptor of this process that is open at `path`.
int DescriptorOf(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) == path) {
      return std::stoi(entry.path().filename());
    }
  }
  return -1;
}

TEST(WorkerLogs, LogFileSystemHangs_TheFailureIsReportedAllTheSame) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "puts a pipe in place of a file that another thread writes: a race by intent";
#endif
  const TemporaryDirectory directory;
  LifeLine line;
  LaunchConfig config = ShellConfig("exec 9>$1; echo w >&9; read x < $2; echo out; exit 3", 1,
                                    {line.path(), directory / "go"});
  config.log_dir = directory / "logs";
  config.redirects.all = kStdout;
  ASSERT_EQ(::mkfifo((directory / "go").c_str(), 0600), 0);
  GroupTimeouts timeouts;
  timeouts.output = milliseconds(50);
  Pipe hung;  // full, and nobody reads: a write waits as on a hung file server
  const int capacity = ::fcntl(hung.write_end.get(), F_GETPIPE_SZ);
  const std::string filling(static_cast<std::size_t>(capacity), 'x');
  ASSERT_EQ(::write(hung.write_end.get(), filling.data(), filling.size()), capacity);

  GroupHarness harness(config, {}, timeouts);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(2));
  const std::string log = harness.group().log_directory() + "/attempt_0/0/stdout.log";
  const int file = DescriptorOf(log);
  ASSERT_GE(file, 0) << log;
  ASSERT_EQ(::dup3(hung.write_end.get(), file, O_CLOEXEC), file);
  {
    const UniqueFd go(::open((directory / "go").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(go.valid());
  }
  ASSERT_TRUE(harness.RunUntil([&] { return harness.group().idle(); }, seconds(20)));
  ASSERT_THAT(harness.exits(), SizeIs(1));
  EXPECT_EQ(harness.exit_of(0).exit_code, 3);
  EXPECT_EQ(harness.exit_of(0).error_text, "");
  EXPECT_FALSE(harness.group().FlushConsole(milliseconds(1)));
  // The end of the group, too, does not wait for the file.
}

TEST(WorkerLogs, ThreeKilobyteLinesInHalves_EachLineBelongsToOneRank) {
  GroupHarness harness(
      ShellConfig("h=$(printf '%01500d' 0 | tr 0 $LOCAL_RANK); "
                  "for i in $(seq 20); do printf %s $h; sleep 0.005; echo $h; done",
                  8));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::vector<std::string> lines = Lines(harness.out());
  ASSERT_THAT(lines, SizeIs(160));
  for (const std::string& line : lines) {
    ASSERT_THAT(line, StartsWith("[default"));
    const char rank = line[8];
    EXPECT_EQ(line, std::string("[default") + rank + "]:" + std::string(3000, rank));
  }
}

TEST(WorkerLogs, Streams_EachToItsOwnConsole) {
  GroupHarness harness(ShellConfig("echo out; echo err >&2", 2));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(Lines(harness.out()), Each(HasSubstr("]:out")));
  EXPECT_THAT(Lines(harness.err()), Each(HasSubstr("]:err")));
  EXPECT_THAT(Lines(harness.err()), SizeIs(2));
}

TEST(WorkerLogs, OneWorkerJob_NoPrefix) {
  GroupHarness harness(ShellConfig("printf 'a\\nb'", 1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "a\nb") << "byte for byte";
}

TEST(WorkerLogs, PrefixTemplate_Filled) {
  LaunchConfig config = ShellConfig("echo hi", 1);
  config.role = "trainer";
  config.log_line_prefix_template = "<${role_name} ${local_rank} ${rank} ${hostname}> ";
  GroupHarness harness(config);
  RoundInfo round = test::SingleNodeRound(1);
  round.first_rank = 4;
  round.world_size = 5;
  ASSERT_TRUE(harness.group().Start(round).ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  EXPECT_EQ(harness.out(), std::string("<trainer 0 4 ") + host.data() + "> hi\n");
}

TEST(WorkerLogs, RanksFilter_OthersSilentOnConsoleButNotInFiles) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig("echo hi", 3);
  config.log_dir = directory.path();
  config.tee.all = kStdout;
  config.local_ranks_filter = {1};
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "[default1]:hi\n");
  EXPECT_EQ(ReadPath(harness.group().log_directory() + "/attempt_0/2/stdout.log"), "hi\n");
}

TEST(WorkerLogs, RedirectAndTee_FilesExactAndConsoleAsAsked) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig("printf 'a\\r\\nb\\000c\\377'; printf 'err' >&2", 2);
  config.log_dir = directory / "deep/er";
  config.redirects.all = kBothStreams;
  config.tee.by_local_rank[1] = kStderr;
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "");
  EXPECT_EQ(harness.err(), "[default1]:err\n");
  const std::string logs = harness.group().log_directory();
  EXPECT_THAT(logs, StartsWith(directory / "deep/er/test_"));
  EXPECT_EQ(ReadPath(logs + "/attempt_0/0/stdout.log"), std::string("a\r\nb\0c\377", 7));
  EXPECT_EQ(ReadPath(logs + "/attempt_0/1/stderr.log"), "err");
}

TEST(WorkerLogs, Filters_MatchingLinesOfAllRanksInOneFileMoreAnAttempt) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig(
      "echo loss $LOCAL_RANK; echo other; printf 'warn %s' $LOCAL_RANK >&2; echo loss >&2", 2);
  config.log_dir = directory.path();
  config.redirects.by_local_rank[0] = kBothStreams;  // the console's share changes nothing
  config.local_ranks_filter = {0};
  config.duplicate_stdout_filters = {"loss", "error"};
  config.duplicate_stderr_filters = {"warn"};
  GroupHarness harness(config);
  for (std::int64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(harness.Start(round).ok());
    ASSERT_TRUE(harness.RunUntilIdle());
  }
  for (const char* const attempt : {"/attempt_0", "/attempt_0_round_2"}) {
    const std::string logs = harness.group().log_directory() + attempt;
    EXPECT_THAT(Lines(ReadPath(logs + "/filtered_stdout.log")),
                UnorderedElementsAre("[default0]:loss 0", "[default1]:loss 1"));
    EXPECT_THAT(Lines(ReadPath(logs + "/filtered_stderr.log")),
                UnorderedElementsAre("[default0]:warn 0loss", "[default1]:warn 1loss"));
  }
  EXPECT_EQ(harness.out(), "");
}

TEST(WorkerLogs, NextRoundOfTheSameAttempt_OverwritesNothing) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig("echo round $DDL_ROUND", 1);
  config.log_dir = directory.path();
  config.redirects.all = kStdout;
  GroupHarness harness(config);
  for (std::int64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(harness.Start(round).ok());
    ASSERT_TRUE(harness.RunUntilIdle());
  }
  const std::string logs = harness.group().log_directory();
  EXPECT_EQ(ReadPath(logs + "/attempt_0/0/stdout.log"), "round 1\n");
  EXPECT_EQ(ReadPath(logs + "/attempt_0_round_2/0/stdout.log"), "round 2\n");
}

TEST(WorkerLogs, LogDirIsAFile_InvalidArgument) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig("true", 1);
  config.log_dir = directory / "file";
  { const UniqueFd fd(::open(config.log_dir.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }
  GroupHarness harness(config);
  const absl::Status started = harness.Start();
  EXPECT_EQ(started.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(started.message()), HasSubstr(config.log_dir));
}

TEST(WorkerLogs, LogDirDevNull_NoFilesButAnErrorFile) {
  LaunchConfig config =
      ShellConfig("echo hi; echo x > $TORCHELASTIC_ERROR_FILE && echo written", 1);
  config.log_dir = "/dev/null";
  config.tee.all = kBothStreams;
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "hi\nwritten\n");
  EXPECT_EQ(harness.group().log_directory(), "");
}

TEST(WorkerLogs, FiftyMegabyteLine_ExactFileAndOneConsoleLine) {
  const TemporaryDirectory directory;
  constexpr std::size_t kBytes = 50'000'000;
  LaunchConfig config =
      ShellConfig("[ $LOCAL_RANK = 1 ] || head -c 50000000 /dev/zero | tr '\\0' x", 2);
  config.log_dir = directory.path();
  config.tee.all = kStdout;
  ConsoleOptions console;
  console.buffer_bytes = std::size_t{256} << 20U;  // none may be dropped here
  GroupHarness harness(config, console);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::string logs = harness.group().log_directory();
  EXPECT_EQ(std::filesystem::file_size(logs + "/attempt_0/0/stdout.log"), kBytes);
  const std::string out = harness.out();
  EXPECT_EQ(out.size(), kBytes + std::string("[default0]:\n").size());
  EXPECT_EQ(out.find('\n'), out.size() - 1);
}

TEST(WorkerLogs, FiveHundredProgressUpdates_FewPrefixes) {
  GroupHarness harness(ShellConfig(
      "[ $LOCAL_RANK = 1 ] || { for i in $(seq 500); do printf '\\r%d' $i; done; echo; }", 2));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::string out = harness.out();
  EXPECT_THAT(out, testing::EndsWith("[default0]:500\n"));
  EXPECT_LT(out.size(), 500U);
}

TEST(WorkerLogs, PausedConsoleWithFiles_JobEndsFileIsCompleteLinesAreCounted) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig("seq 300000", 1);
  config.log_dir = directory.path();
  config.tee.all = kStdout;
  config.log_line_prefix_template = "[x]:";
  Pipe pipe;  // nobody reads it
  ConsoleOptions console;
  console.stdout_fd = pipe.write_end.get();
  console.buffer_bytes = std::size_t{64} << 10U;
  GroupHarness harness(config, console);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return harness.group().idle(); }));
  EXPECT_TRUE(harness.exit_of(0).ok());
  const std::string file = ReadPath(harness.group().log_directory() + "/attempt_0/0/stdout.log");
  EXPECT_THAT(Lines(file), SizeIs(300'000));
  // Now somebody reads: every line is either shown or counted.
  std::string shown;
  std::thread reader([&] {
    std::array<char, 65536> bytes{};
    while (shown.find("all of them are in") == std::string::npos) {
      const ssize_t n = ::read(pipe.read_end.get(), bytes.data(), bytes.size());
      if (n <= 0) {
        return;
      }
      shown.append(bytes.data(), static_cast<std::size_t>(n));
    }
  });
  harness.group().FlushConsole(test::kPatience);
  reader.join();
  EXPECT_THAT(shown, HasSubstr("too slow: "));
}

TEST(WorkerLogs, PausedConsoleWithoutFiles_WorkerWaitsOthersGoOn) {
  Pipe pipe;
  ConsoleOptions console;
  console.stdout_fd = pipe.write_end.get();
  console.buffer_bytes = std::size_t{64} << 10U;
  // Rank 0 floods stdout; rank 1 only ever uses stderr, and fails.
  GroupHarness harness(ShellConfig("if [ $LOCAL_RANK = 0 ]; then seq 500000; else "
                                   "sleep 0.2; echo trouble >&2; exit 3; fi",
                                   2),
                       console);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }));
  EXPECT_EQ(harness.exits().front().local_rank, 1);
  EXPECT_EQ(harness.exits().front().error_text, "trouble");
  std::size_t lines = 0;
  std::thread reader([&] {
    std::array<char, 65536> bytes{};
    while (lines < 500'000) {
      const ssize_t n = ::read(pipe.read_end.get(), bytes.data(), bytes.size());
      if (n <= 0) {
        return;
      }
      lines += static_cast<std::size_t>(std::count(bytes.begin(), bytes.begin() + n, '\n'));
    }
  });
  EXPECT_TRUE(harness.RunUntilIdle());
  reader.join();
  EXPECT_EQ(lines, 500'000U);  // not one was lost
  EXPECT_TRUE(harness.exit_of(0).ok());
}

TEST(WorkerLogs, ReaderOfTheConsoleGone_WorkersGoOnAndItIsSaidOnce) {
  Pipe pipe;
  pipe.read_end.reset();
  ConsoleOptions console;
  console.stdout_fd = pipe.write_end.get();
  GroupHarness harness(ShellConfig("for i in 1 2 3 4 5; do seq 1000; sleep 0.02; done; exit 4", 2),
                       console);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.exit_of(0).exit_code, 4);
  EXPECT_EQ(harness.exit_of(1).exit_code, 4);
  EXPECT_THAT(Lines(harness.err()),
              ElementsAre(AllOf(HasSubstr("cannot write to stdout"), HasSubstr("Broken pipe"))));
}

// A limit on the size of files, for this process only, stands in for the full
// disk: write(2) fails in the middle of a file in the same way.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{bytes, former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &former_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit former_{};
};

TEST(WorkerLogs, FileCannotGrow_OneWarningAndTheWorkersGoOn) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig("seq 20000", 2);
  config.log_dir = directory.path();
  config.redirects.all = kStdout;
  GroupHarness harness(config);
  const FileSizeLimit limit(4096);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.exit_of(0).ok());
  EXPECT_TRUE(harness.exit_of(1).ok());
  EXPECT_THAT(Lines(harness.err()), ElementsAre(HasSubstr("cannot write the log file")));
  const std::string logs = harness.group().log_directory();
  EXPECT_EQ(std::filesystem::file_size(logs + "/attempt_0/0/stdout.log"), 4096U);
}

TEST(WorkerLogs, ClosedStreams_NotTakenForDeadAndNoCpuBurnt) {
  LifeLine line;
  GroupHarness harness(ShellConfig("exec 9>$1 >&- 2>&-; echo w >&9; sleep 0.5", 1, {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(2));
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  EXPECT_FALSE(harness.RunUntil([&] { return !harness.exits().empty(); }, milliseconds(300)));
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  const auto used_ms = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  EXPECT_LT(used_ms(after) - used_ms(before), 100);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.exit_of(0).ok());
}

TEST(WorkerLogs, GrandchildHoldsThePipe_ExitReportedAtOnce) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      "exec 9>$1; if [ $LOCAL_RANK = 0 ]; then (sh -c 'echo g >&9; exec sleep 1000' &); "
      "read -r x < $2; printf 'bye'; exit 3; else exec sleep 1000; fi",
      2, {line.path(), "/dev/null"}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }, seconds(20)));
  EXPECT_EQ(harness.exit_of(0).exit_code, 3);
  harness.group().FlushConsole(test::kPatience);
  EXPECT_EQ(harness.out(), "[default0]:bye\n");
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle());
}

TEST(WorkerLogs, OutputOfAGrandchildAfterTheExit_StillShown) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      "exec 9>$1; if [ $LOCAL_RANK = 0 ]; then "
      "(sh -c 'while [ ! -e $1.go ]; do sleep 0.01; done; echo late; echo g >&9' sh $1 &); exit 0; "
      "else exec sleep 1000; fi",
      2, {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }));
  ASSERT_EQ(::mkdir((line.path() + ".go").c_str(), 0700), 0);
  ASSERT_TRUE(line.AwaitBytes(2));
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "[default0]:late\n");
}

TEST(WorkerLogs, SameFileForBothStreams_LinesStayWhole) {
  const UniqueFd both(::memfd_create("both", MFD_CLOEXEC));
  ConsoleOptions console;
  console.stdout_fd = both.get();
  console.stderr_fd = both.get();
  GroupHarness harness(
      ShellConfig("for i in $(seq 200); do echo $LOCAL_RANK; echo $LOCAL_RANK >&2; done", 4),
      console);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::vector<std::string> lines = Lines(test::ReadAll(both.get()));
  ASSERT_THAT(lines, SizeIs(1600));
  for (const std::string& line : lines) {
    EXPECT_EQ(line, std::string("[default") + line[8] + "]:" + line[8]);
  }
}

}  // namespace
}  // namespace ddl
