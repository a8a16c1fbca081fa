// Real processes: how they end, how they are stopped, that none is left.
#include "launcher/worker/worker_group.h"

#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/binding/cpu_list.h"
#include "tests/support/group_harness.h"
#include "tests/support/processes.h"

namespace ddl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::GroupHarness;
using test::LifeLine;
using test::Lines;
using test::ShellConfig;
using test::StartHost;
using test::StoppedProcess;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Writes one byte when it is ready, and holds the line open.
const std::string kOpenLine = "exec 9>$1; ";

void WriteScript(const std::string& path, const std::string& text, mode_t mode) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string ReadWhole(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t n = ::read(fd.get(), text.data(), text.size());
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return text;
}

pid_t ParentOf(pid_t pid) {
  const std::string status = ReadWhole("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = status.find("PPid:\t");
  return at == std::string::npos ? -1 : std::stoi(status.substr(at + 6));
}

// ---- how workers end ------------------------------------------------------

TEST(WorkerGroup, AllExitCodes_ReportedAsTheyAre) {
  constexpr int kAtOnce = 32;
  for (int base = 0; base < 256; base += kAtOnce) {
    GroupHarness harness(ShellConfig("exit $((LOCAL_RANK + $1))", kAtOnce, {std::to_string(base)}));
    ASSERT_TRUE(harness.Start().ok());
    ASSERT_TRUE(harness.RunUntilIdle());
    ASSERT_THAT(harness.exits(), SizeIs(kAtOnce));
    for (int rank = 0; rank < kAtOnce; ++rank) {
      EXPECT_EQ(harness.exit_of(rank).exit_code, base + rank);
      EXPECT_EQ(harness.exit_of(rank).term_signal, 0);
      EXPECT_EQ(harness.exit_of(rank).ok(), base + rank == 0);
    }
  }
}

TEST(WorkerGroup, EverySignalThatKills_ReportedByNumber) {
  std::vector<int> signals;
  for (int signal = 1; signal <= 31; ++signal) {
    const std::set<int> not_deadly = {SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP,
                                      SIGTTIN, SIGTTOU, SIGURG,  SIGWINCH};
    if (!not_deadly.contains(signal)) {
      signals.push_back(signal);
    }
  }
  std::string list;
  for (const int signal : signals) {
    list += std::to_string(signal) + " ";
  }
  LaunchConfig config = ShellConfig("set -- " + list +
                                        "; ulimit -c 0; shift $LOCAL_RANK; "
                                        "kill -$1 $$; sleep 60",
                                    static_cast<int>(signals.size()));
  GroupHarness killed(config);
  ASSERT_TRUE(killed.Start().ok());
  ASSERT_TRUE(killed.RunUntilIdle());
  for (std::size_t i = 0; i < signals.size(); ++i) {
    const WorkerExit& exit = killed.exit_of(static_cast<int>(i));
    EXPECT_EQ(exit.term_signal, signals[i]);
    EXPECT_EQ(exit.exit_code, 0);
  }
}

TEST(WorkerGroup, FailuresOneAfterTheOther_ReportedInThatOrder) {
  LifeLine line;
  // Rank 2 first, then 0, then 1: each waits for the one before to be gone.
  GroupHarness harness(ShellConfig(
      "case $LOCAL_RANK in 2) exit 4;; 0) while [ ! -e $1/0 ]; do sleep 0.01; done; exit 5;;"
      " 1) while [ ! -e $1/1 ]; do sleep 0.01; done; exit 6;; esac",
      3, {std::filesystem::path(line.path()).parent_path().string()}));
  const std::string directory = std::filesystem::path(line.path()).parent_path().string();
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return harness.exits().size() == 1; }));
  ASSERT_EQ(::mkdir((directory + "/0").c_str(), 0700), 0);
  ASSERT_TRUE(harness.RunUntil([&] { return harness.exits().size() == 2; }));
  ASSERT_EQ(::mkdir((directory + "/1").c_str(), 0700), 0);
  ASSERT_TRUE(harness.RunUntilIdle());
  std::vector<int> codes;
  for (const WorkerExit& exit : harness.exits()) {
    codes.push_back(exit.exit_code);
  }
  EXPECT_THAT(codes, ElementsAre(4, 5, 6));
}

TEST(WorkerGroup, SecondRound_RunsInTheSameGroup) {
  GroupHarness harness(ShellConfig("echo round $DDL_ROUND", 2));
  for (std::int64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(harness.Start(round).ok());
    ASSERT_TRUE(harness.RunUntilIdle());
  }
  EXPECT_THAT(harness.exits(), SizeIs(6));
  EXPECT_THAT(
      Lines(harness.out()),
      UnorderedElementsAre("[default0]:round 1", "[default1]:round 1", "[default0]:round 2",
                           "[default1]:round 2", "[default0]:round 3", "[default1]:round 3"));
}

TEST(WorkerGroup, ErrorFile_PreferredToStderr) {
  const TemporaryDirectory directory;
  LaunchConfig config = ShellConfig(
      "echo noise >&2; echo '{\"message\":\"the cause\"}' > $TORCHELASTIC_ERROR_FILE; exit 1", 1);
  config.log_dir = directory / "logs";
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.exit_of(0).error_text, "the cause");
  EXPECT_EQ(harness.exit_of(0).error_file,
            harness.group().log_directory() + "/attempt_0/0/error.json");
}

TEST(WorkerGroup, ErrorFileWrittenBeforeTheEnd_FailedThen) {
  GroupHarness harness(
      ShellConfig("echo \"{\\\"message\\\":\\\"m\\\",\\\"timestamp\\\":$(date +%s)}\" > "
                  "$TORCHELASTIC_ERROR_FILE;"
                  "sleep 0.3; exit 1",
                  1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  const WorkerExit& exit = harness.exit_of(0);
  EXPECT_EQ(exit.error_text, "m");
  EXPECT_LE(exit.failed_at, exit.ended_at - milliseconds(250));
  EXPECT_LT(exit.ended_at - exit.failed_at, test::kPatience);
  EXPECT_FALSE(exit.error_path.empty());
}

TEST(WorkerGroup, ErrorFileOfAClockThatWasSet_FailedWhenItEnded) {
  GroupHarness harness(ShellConfig(
      "echo '{\"message\":\"m\",\"timestamp\":1000}' > $TORCHELASTIC_ERROR_FILE; exit 1", 1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.exit_of(0).failed_at, harness.exit_of(0).ended_at);
  EXPECT_GT(harness.exit_of(0).wall_time_s, 1000);
}

TEST(WorkerGroup, ErrorFilePathNotUtf8_ReportedAsUtf8) {
  const TemporaryDirectory directory;
  LaunchConfig config =
      ShellConfig("echo '{\"message\":\"the cause\"}' > $TORCHELASTIC_ERROR_FILE; exit 1", 1);
  config.log_dir = directory / "logs\xff";
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.exit_of(0).error_text, "the cause");
  EXPECT_THAT(harness.exit_of(0).error_file,
              AllOf(HasSubstr("/logs?/"), EndsWith("/attempt_0/0/error.json")));
}

TEST(WorkerGroup, SocketFullOfSpawns_AllStart) {
  constexpr int kMany = 300;
  LaunchConfig config = ShellConfig("", kMany);
  config.argv = {"/bin/true"};
  GroupHarness harness(config);
  {
    const StoppedProcess stopped(harness.supervisor_pid());
    ASSERT_TRUE(harness.Start().ok());
    // The rest of the queue, with its descriptors.
    for (int i = 0; i < kMany; ++i) {
      harness.group().Forward(SIGURG);
    }
    ASSERT_TRUE(harness.group().deadline().has_value());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_THAT(harness.exits(), SizeIs(kMany));
  EXPECT_TRUE(std::all_of(harness.exits().begin(), harness.exits().end(),
                          [](const WorkerExit& exit) { return exit.ok(); }));
}

TEST(WorkerGroup, NoErrorFile_LastLinesOfStderr) {
  GroupHarness harness(ShellConfig("for i in $(seq 100); do echo line $i >&2; done; exit 1", 1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::vector<std::string> lines = Lines(harness.exit_of(0).error_text);
  ASSERT_THAT(lines, SizeIs(20));
  EXPECT_EQ(lines.front(), "line 81");
  EXPECT_EQ(lines.back(), "line 100");
  EXPECT_EQ(harness.exit_of(0).error_file, "");
}

// ---- programs that cannot be started --------------------------------------

// Starts, and ends the round as a node does; the exit of the worker that could
// not be started, which comes first and once.
WorkerExit FailedStart(GroupHarness& harness, std::int64_t round = 1) {
  EXPECT_TRUE(harness.Start(round).ok());
  EXPECT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }));
  harness.group().Stop(MonotonicNow());
  EXPECT_TRUE(harness.RunUntilIdle());
  WorkerExit exit = harness.exits().empty() ? WorkerExit() : harness.exits().front();
  for (std::size_t i = 1; i < harness.exits().size(); ++i) {
    // One whose own failure was still to come when the stop came.
    EXPECT_EQ(harness.exits()[i].term_signal, SIGTERM);
    EXPECT_NE(harness.exits()[i].pid, 0);
  }
  EXPECT_EQ(exit.pid, 0);
  EXPECT_EQ(exit.term_signal, 0);
  EXPECT_GT(exit.wall_time_s, 0);
  harness.exits().clear();
  return exit;
}

TEST(WorkerGroup, MissingProgram_OneExit127) {
  LaunchConfig config = ShellConfig("", 3);
  config.argv = {"/nowhere/train_bin"};
  config.program_name = "train_bin";
  GroupHarness harness(config);
  const WorkerExit exit = FailedStart(harness);
  EXPECT_EQ(exit.exit_code, 127);
  EXPECT_THAT(exit.error_text, AllOf(HasSubstr("/nowhere/train_bin"), HasSubstr("No such file")));
}

TEST(WorkerGroup, MissingInterpreter_SaysSo) {
  const TemporaryDirectory directory;
  const std::string script = directory / "script";
  WriteScript(script, "#!/nowhere/sh\n", 0755);
  LaunchConfig config = ShellConfig("", 1);
  config.argv = {script};
  GroupHarness harness(config);
  const WorkerExit exit = FailedStart(harness);
  EXPECT_EQ(exit.exit_code, 127);
  EXPECT_THAT(exit.error_text, HasSubstr("interpreter"));
}

TEST(WorkerGroup, NotExecutable_OneExit126) {
  const TemporaryDirectory directory;
  const std::string script = directory / "script";
  WriteScript(script, "", 0644);
  LaunchConfig config = ShellConfig("", 2);
  for (const std::string& path : {script, directory.path()}) {
    config.argv = {path};
    GroupHarness harness(config);
    EXPECT_EQ(FailedStart(harness).exit_code, 126) << path;
  }
}

TEST(WorkerGroup, NoProgramFormat_Exit126) {
  const TemporaryDirectory directory;
  const std::string script = directory / "script";
  WriteScript(script, "echo hi\n", 0755);
  LaunchConfig config = ShellConfig("", 1);
  config.argv = {script};
  GroupHarness harness(config);
  const WorkerExit exit = FailedStart(harness);
  EXPECT_EQ(exit.exit_code, 126);
  EXPECT_THAT(exit.error_text, HasSubstr("#!"));
}

TEST(WorkerGroup, BoundWorkers_RunOnTheirCpus) {
  const std::string allowed = ToText(AllowedCpus());
  const std::string first = std::to_string(AllowedCpus().front());
  LaunchConfig config =
      ShellConfig("grep Cpus_allowed_list: /proc/self/status | sed \"s/^.*:/$RANK/\"", 2);
  config.places.resize(2);
  config.places[0].cpus = {AllowedCpus().front()};
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(Lines(harness.out()),
              UnorderedElementsAre("[default0]:0\t" + first, "[default1]:1\t" + allowed));
}

TEST(WorkerGroup, CpusThatAreGone_AreAStartErrorOfAWorkerThatNeverRan) {
  LaunchConfig config = ShellConfig("echo ran", 1);
  config.places.resize(1);
  config.places[0].cpus = {100'000};
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "");
  EXPECT_EQ(harness.exit_of(0).pid, 0);
  EXPECT_EQ(harness.exit_of(0).exit_code, 1);
  EXPECT_THAT(harness.exit_of(0).error_text, HasSubstr("cannot bind a worker to its CPUs"));
}

TEST(WorkerGroup, MissingDirectory_Exit1) {
  LaunchConfig config = ShellConfig("true", 1);
  config.cwd = "/nowhere";
  GroupHarness harness(config);
  const WorkerExit exit = FailedStart(harness);
  EXPECT_EQ(exit.exit_code, 1);
  EXPECT_THAT(exit.error_text, HasSubstr("/nowhere"));
}

TEST(WorkerGroup, AfterAFailedStart_TheNextRoundRuns) {
  const TemporaryDirectory directory;
  const std::string script = directory / "script";
  LaunchConfig config = ShellConfig("", 2);
  config.argv = {script};
  GroupHarness harness(config);
  EXPECT_EQ(FailedStart(harness, 1).exit_code, 127);
  WriteScript(script, "#!/bin/sh\nexit 9\n", 0755);
  ASSERT_TRUE(harness.Start(2).ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.exit_of(0).exit_code, 9);
  EXPECT_EQ(harness.exit_of(1).exit_code, 9);
}

TEST(WorkerGroup, LogDirectoryIsAFile_KnownAtOnceAndIdle) {
  const TemporaryDirectory directory;
  WriteScript(directory / "file", "", 0644);
  LaunchConfig config = ShellConfig("true", 2);
  config.log_dir = directory / "file";
  GroupHarness harness(config);
  EXPECT_FALSE(harness.Start().ok());
  EXPECT_TRUE(harness.group().idle());
}

TEST(WorkerGroup, DescriptorsRunOutInStart_NothingReportedAndBusyUntilAllAreGone) {
  LifeLine line;
  GroupHarness harness(ShellConfig(kOpenLine + "echo w >&9; exec sleep 1000", 8, {line.path()}));
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  std::vector<UniqueFd> used;  // enough for the limit, too few left for eight
  rlimit tight = former;
  tight.rlim_cur = 120;  // more than Start asks for
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  do {
    used.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (used.back().valid());
  used.resize(used.size() - 13);
  const absl::Status started = harness.Start();
  ::setrlimit(RLIMIT_NOFILE, &former);
  EXPECT_EQ(started.code(), absl::StatusCode::kResourceExhausted) << started;
  EXPECT_FALSE(harness.group().idle());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(harness.exits(), IsEmpty());
  ASSERT_TRUE(harness.Start(2).ok());
  ASSERT_TRUE(line.AwaitBytes(16));
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(harness.exits(), SizeIs(8));
}

// ---- a supervisor that takes its time: so does exec on a slow file server --

TEST(WorkerGroup, StopWhileSpawnsAreOutstanding_AllEnd) {
  GroupHarness harness(ShellConfig("exec sleep 1000", 4));
  const StoppedProcess stopped(harness.supervisor_pid());
  ASSERT_TRUE(harness.Start().ok());  // returns, though nobody answers
  ASSERT_TRUE(harness.group().OnReady(MonotonicNow())->empty());
  harness.group().Stop(MonotonicNow());
  EXPECT_FALSE(harness.group().idle());
  stopped.Continue();
  ASSERT_TRUE(harness.RunUntilIdle(seconds(20)));  // the grace is 30 s
  ASSERT_THAT(harness.exits(), SizeIs(4));
  EXPECT_EQ(harness.exit_of(3).term_signal, SIGTERM);
}

TEST(WorkerGroup, KillWhileSpawnsAreOutstanding_AllEndAndTheNextRoundRuns) {
  GroupHarness harness(ShellConfig("[ $DDL_ROUND = 2 ] || exec sleep 1000", 4));
  const StoppedProcess stopped(harness.supervisor_pid());
  ASSERT_TRUE(harness.Start().ok());
  harness.group().Kill();
  stopped.Continue();
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_THAT(harness.exits(), SizeIs(4));
  EXPECT_EQ(harness.exit_of(3).term_signal, SIGKILL);
  harness.exits().clear();
  ASSERT_TRUE(harness.Start(2).ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.exit_of(3).ok());
}

TEST(WorkerGroup, StartTakesTooLong_OneExit) {
  GroupTimeouts timeouts;
  timeouts.start = milliseconds(50);
  GroupHarness harness(ShellConfig("exec sleep 1000", 4), {}, timeouts);
  const StoppedProcess stopped(harness.supervisor_pid());
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.exits().empty(); }));
  EXPECT_THAT(harness.exit_of(0).error_text, HasSubstr("file system"));
  EXPECT_EQ(harness.exit_of(0).exit_code, 1);
  harness.group().Stop(MonotonicNow());
  stopped.Continue();
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(harness.exits(), SizeIs(4));  // each once
}

TEST(WorkerGroup, MoreRequestsThanTheSocketTakes_NoneWaitsAndAllArriveInOrder) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      kOpenLine + "trap 'echo usr1; exit 0' USR1; echo w >&9; while :; do sleep 0.02; done", 1,
      {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(2));
  {
    const StoppedProcess stopped(harness.supervisor_pid());
    const Instant begin = MonotonicNow();
    for (int i = 0; i < 5000; ++i) {
      harness.group().Forward(SIGURG);  // ignored
    }
    harness.group().Forward(SIGUSR1);
    EXPECT_LT(MonotonicNow() - begin, seconds(5));
    EXPECT_TRUE(harness.group().deadline().has_value());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "usr1\n");
  EXPECT_FALSE(harness.group().deadline().has_value());
}

TEST(WorkerGroup, SupervisorDoesNotAnswerTheKill_GivenUpAndNobodyLives) {
  LifeLine line;
  GroupTimeouts timeouts;
  timeouts.kill = timeouts.supervisor = milliseconds(50);
  GroupHarness harness(ShellConfig(kOpenLine + "echo w >&9; exec sleep 1000", 2, {line.path()}), {},
                       timeouts);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(4));
  const StoppedProcess stopped(harness.supervisor_pid());
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.error().ok(); }));
  EXPECT_THAT(std::string(harness.error().message()), HasSubstr("did not answer"));
  EXPECT_TRUE(harness.group().idle());
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
}

// ---- processes that do not die --------------------------------------------

// A real process that SIGKILL does not remove: traced, it stays a zombie that
// its parent cannot reap, until it is released.
class Undying {
 public:
  explicit Undying(pid_t pid) : pid_(pid) {
    EXPECT_EQ(::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr), 0) << std::strerror(errno);
  }
  ~Undying() { Release(); }
  Undying(const Undying&) = delete;
  Undying& operator=(const Undying&) = delete;
  void Release() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

// Each worker writes its rank and its pid: "0:4711 ".
const std::string kTellPid = "echo -n \"$LOCAL_RANK:$$ \" >&9; exec sleep 1000";

pid_t PidOfRankZero(const std::string& told) {
  const std::size_t at = told.find("0:");
  return at == std::string::npos ? -1 : std::stoi(told.substr(at + 2));
}

TEST(WorkerGroup, WorkerDoesNotDie_LeftBehindNamedAndTheNextRoundRuns) {
  LifeLine line;
  GroupTimeouts timeouts;
  timeouts.kill = milliseconds(100);
  GroupHarness harness(
      ShellConfig(kOpenLine + "[ $DDL_ROUND = 2 ] || { " + kTellPid + "; }", 1, {line.path()}), {},
      timeouts);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(3));
  const pid_t pid = PidOfRankZero(line.received());
  Undying undying(pid);
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle(seconds(20)));
  const std::string said =
      "pid " + std::to_string(pid) + " (state Z) does not die of SIGKILL; it is left behind";
  EXPECT_EQ(harness.err(), "ddlaunch: " + said + "\n");
  ASSERT_THAT(harness.exits(), SizeIs(1));
  EXPECT_EQ(harness.exit_of(0).pid, pid);
  EXPECT_EQ(harness.exit_of(0).term_signal, SIGKILL);
  EXPECT_EQ(harness.exit_of(0).error_text, said);
  // The next rounds do not wait for it, and its late end is nobody's exit.
  harness.exits().clear();
  ASSERT_TRUE(harness.Start(2).ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(harness.exits(), SizeIs(1));
  undying.Release();
  ASSERT_TRUE(harness.Start(2).ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(harness.exits(), SizeIs(2));
  EXPECT_TRUE(harness.exits().back().ok());
  EXPECT_EQ(harness.err(), "ddlaunch: " + said + "\n");
}

TEST(WorkerGroup, OwnerKilledAndAWorkerDoesNotDie_TheSupervisorEndsAllTheSame) {
  LifeLine line;
  const pid_t host = StartHost({"1", "/bin/sh", "-c", kOpenLine + kTellPid, "sh", line.path()});
  ASSERT_TRUE(line.AwaitBytes(3));
  const pid_t worker = PidOfRankZero(line.received());
  const pid_t supervisor = ParentOf(worker);
  const UniqueFd supervisor_end(static_cast<int>(::syscall(SYS_pidfd_open, supervisor, 0U)));
  ASSERT_TRUE(supervisor_end.valid());
  const Undying undying(worker);
  ASSERT_EQ(::kill(host, SIGKILL), 0);
  EXPECT_EQ(::waitpid(host, nullptr, 0), host);
  pollfd ended{supervisor_end.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20'000), 1);  // kKillTimeout is 5 s
}

TEST(WorkerGroup, LongArgumentsAndEnvironment_ArriveWhole) {
  std::vector<std::string> arguments(14, std::string(100'000, 'a'));
  LaunchConfig config = ShellConfig("echo $# $(echo \"$*\" | wc -c)", 1, arguments);
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "14 1400014\n");
}

TEST(WorkerGroup, ArgumentsTooLong_SaysSo) {
  LaunchConfig config =
      ShellConfig("true", 2, std::vector<std::string>(40, std::string(100'000, 'a')));
  GroupHarness harness(config);
  const WorkerExit exit = FailedStart(harness);
  EXPECT_EQ(exit.exit_code, 126) << "as a shell has it";
  EXPECT_THAT(exit.error_text, HasSubstr("too long"));
}

// ---- what a worker starts with --------------------------------------------

TEST(WorkerGroup, Descriptors_OnlyTheThreeStandardOnes) {
  const UniqueFd leaked(::open("/dev/zero", O_RDONLY));  // without close-on-exec
  ASSERT_TRUE(leaked.valid());
  LaunchConfig config = ShellConfig("", 1);
  config.argv = {"/bin/ls", "/proc/self/fd"};
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "0\n1\n2\n3\n");  // 3 is the directory that ls reads
}

TEST(WorkerGroup, SignalsIgnoredByTheCaller_DefaultAgainButHangUp) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  std::array<struct sigaction, 3> former{};
  const std::array<int, 3> signals = {SIGINT, SIGPIPE, SIGHUP};
  for (std::size_t i = 0; i < signals.size(); ++i) {
    ::sigaction(signals[i], &ignore, &former[i]);
  }
  GroupHarness harness(ShellConfig("grep SigIgn /proc/$$/status", 1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  for (std::size_t i = 0; i < signals.size(); ++i) {
    ::sigaction(signals[i], &former[i], nullptr);
  }
  EXPECT_EQ(harness.out(), "SigIgn:\t0000000000000001\n");
}

TEST(WorkerGroup, OpenFilesLimit_TheCallersAndNotTheSupervisors) {
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  rlimit lower = former;
  lower.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  GroupHarness harness(ShellConfig("ulimit -n", 1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "200\n");
  ::setrlimit(RLIMIT_NOFILE, &former);
}

TEST(WorkerGroup, Stdin_RankZeroReadsOthersGetNothing) {
  const UniqueFd saved(::dup(STDIN_FILENO));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "hello\n", 6), 6);
  ::close(ends[1]);
  ::dup2(ends[0], STDIN_FILENO);
  ::close(ends[0]);
  GroupHarness harness(ShellConfig("echo \"<$(cat)>\"", 3));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  ::dup2(saved.get(), STDIN_FILENO);
  EXPECT_THAT(Lines(harness.out()),
              UnorderedElementsAre("[default0]:<hello>", "[default1]:<>", "[default2]:<>"));
}

TEST(WorkerGroup, Environment_ReachesTheWorker) {
  GroupHarness harness(ShellConfig("echo $RANK/$WORLD_SIZE $MASTER_PORT $DDL_GATEWAY", 2));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(Lines(harness.out()), UnorderedElementsAre("[default0]:0/2 29500 unix:/nowhere",
                                                         "[default1]:1/2 29500 unix:/nowhere"));
}

// ---- stopping -------------------------------------------------------------

TEST(WorkerGroup, Stop_ReachesOnlyTheWorkersThenEverything) {
  LifeLine line;
  // The background child would die of a TERM; it is alive when the worker, on
  // its own TERM, asks it for a last service. A second one made itself a daemon.
  GroupHarness harness(
      ShellConfig(kOpenLine + "sh -c 'trap \"\" USR1; echo c >&9; exec sleep 1000' & child=$!; "
                              "setsid sh -c 'trap \"\" TERM; echo d >&9; exec sleep 1000' & "
                              "trap 'kill -0 $child && echo saved; exit 0' TERM; "
                              "echo w >&9; while :; do sleep 0.02; done",
                  2, {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(12));
  harness.group().Stop(MonotonicNow());
  EXPECT_FALSE(harness.group().idle());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
  EXPECT_THAT(Lines(harness.out()), UnorderedElementsAre("[default0]:saved", "[default1]:saved"));
  EXPECT_TRUE(harness.exit_of(0).ok());
}

TEST(WorkerGroup, SuccessfulRound_LeavesNothingBehind) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      kOpenLine + "(setsid sh -c 'trap \"\" TERM HUP; echo d >&9; exec sleep 1000' &) ; "
                  "read -r x < $2",
      1, {line.path(), "/dev/null"}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(harness.exits(), SizeIs(1));
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
}

TEST(WorkerGroup, IgnoresTerm_KilledAtTheTimeout) {
  LifeLine line;
  LaunchConfig config = ShellConfig(
      kOpenLine + "trap '' TERM; echo w >&9; while :; do sleep 0.02; done", 2, {line.path()});
  config.shutdown_timeout = milliseconds(300);
  GroupHarness harness(config);
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(4));
  const Instant begin = MonotonicNow();
  harness.group().Stop(begin);
  harness.group().Stop(begin + seconds(100));  // changes nothing
  ASSERT_EQ(harness.group().deadline(), begin + milliseconds(300));
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_GE(MonotonicNow() - begin, milliseconds(300));
  EXPECT_EQ(harness.exit_of(0).term_signal, SIGKILL);
  EXPECT_EQ(harness.exit_of(1).term_signal, SIGKILL);
}

TEST(WorkerGroup, SavesDuringTheGrace_Completes) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      kOpenLine + "trap 'for i in 1 2 3 4 5; do sleep 0.05; done; echo saved; exit 7' TERM; "
                  "echo w >&9; while :; do sleep 0.02; done",
      1, {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(2));
  harness.group().Stop(MonotonicNow());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "saved\n");
  EXPECT_EQ(harness.exit_of(0).exit_code, 7);
}

TEST(WorkerGroup, KillDuringTheGrace_AtOnce) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      kOpenLine + "trap '' TERM INT; echo w >&9; while :; do sleep 0.02; done", 2, {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(4));
  harness.group().Stop(MonotonicNow());
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle(seconds(10)));  // the grace is 30 s
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
  EXPECT_EQ(harness.exit_of(1).term_signal, SIGKILL);
}

TEST(WorkerGroup, KillWhileAllExit_TheNextRoundIsItsOwn) {
  GroupHarness harness(ShellConfig("exit 0", 4));
  for (std::int64_t round = 1; round <= 50; ++round) {
    ASSERT_TRUE(harness.Start(round).ok());
    harness.group().Kill();
    ASSERT_TRUE(harness.RunUntilIdle());
    ASSERT_THAT(harness.exits(), SizeIs(4));
    harness.exits().clear();
  }
}

TEST(WorkerGroup, ForwardedSignal_ReachesEachWorker) {
  LifeLine line;
  GroupHarness harness(ShellConfig(
      kOpenLine + "trap 'echo usr1; exit 0' USR1; echo w >&9; while :; do sleep 0.02; done", 2,
      {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(4));
  harness.group().Forward(SIGUSR1);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_THAT(Lines(harness.out()), UnorderedElementsAre("[default0]:usr1", "[default1]:usr1"));
}

TEST(WorkerGroup, ForksWithoutEnd_KilledAllTheSame) {
  LifeLine line;
  // Each generation starts the next and ends, so the tree never stands still.
  GroupHarness harness(
      ShellConfig(kOpenLine + "echo w >&9; f() { sleep 0.01; f & }; f & f & wait; sleep 1000", 1,
                  {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(2));
  harness.group().Kill();
  ASSERT_TRUE(harness.RunUntilIdle(seconds(20)));
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
}

TEST(WorkerGroup, Orphans_ReapedWhileTheWorkerRuns) {
  // The worker looks itself: its parent, the supervisor, inherits twenty
  // orphans, and in the end has no child but the worker.
  GroupHarness harness(ShellConfig(
      "for i in $(seq 20); do (exec sleep 0.01 &) ; done; "
      "until [ \"$(echo $(cat /proc/$PPID/task/$PPID/children))\" = $$ ]; do sleep 0.02; done; "
      "echo alone",
      1));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.out(), "alone\n");
}

// ---- deaths of those above ------------------------------------------------

TEST(WorkerGroup, SupervisorKilled_WorkersDieAndOnReadyFails) {
  LifeLine line;
  GroupHarness harness(
      ShellConfig(kOpenLine + "setsid sh -c 'trap \"\" TERM; echo d >&9; exec sleep 1000' & "
                              "trap '' TERM; echo w >&9; while :; do sleep 0.02; done",
                  2, {line.path()}));
  ASSERT_TRUE(harness.Start().ok());
  ASSERT_TRUE(line.AwaitBytes(8));
  ASSERT_EQ(::kill(harness.supervisor_pid(), SIGKILL), 0);
  ASSERT_TRUE(harness.RunUntil([&] { return !harness.error().ok(); }));
  EXPECT_EQ(harness.error().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(harness.group().idle());
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
  EXPECT_EQ(harness.Start(2).code(), absl::StatusCode::kUnavailable);
}

TEST(WorkerGroup, OwnerKilled_NoWorkerAndNothingTheyStartedLives) {
  LifeLine line;
  const pid_t host =
      StartHost({"3", "/bin/sh", "-c",
                 kOpenLine + "setsid sh -c 'trap \"\" TERM; echo d >&9; exec sleep 1000' & "
                             "trap '' TERM INT HUP PIPE; echo w >&9; while :; do sleep 0.02; done",
                 "sh", line.path()});
  ASSERT_TRUE(line.AwaitBytes(12));
  ASSERT_EQ(::kill(host, SIGKILL), 0);
  EXPECT_TRUE(line.AwaitEnd(seconds(5)));
  int status = 0;
  EXPECT_EQ(::waitpid(host, &status, 0), host);
}

TEST(WorkerGroup, OwnerKilledWhileItSpawns_NobodyLives) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    LifeLine line;
    const pid_t host =
        StartHost({"16", "/bin/sh", "-c", kOpenLine + "echo w >&9; while :; do sleep 0.02; done",
                   "sh", line.path()});
    ASSERT_TRUE(line.AwaitBytes(1));  // the first of sixteen
    ASSERT_EQ(::kill(host, SIGKILL), 0);
    EXPECT_TRUE(line.AwaitEnd(seconds(5)));
    EXPECT_EQ(::waitpid(host, nullptr, 0), host);
  }
}

TEST(WorkerGroup, OpenFilesTooFew_RaisedIfTheHardLimitAllowsElseAnError) {
  const auto run = [](const std::string& limits) {
    const pid_t shell = ::fork();
    if (shell == 0) {
      const std::string script = limits + "; exec " DDL_GROUP_HOST " 32 /bin/true";
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(126);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(shell, &status, 0), shell);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(run("ulimit -Sn 64"), 0);
  EXPECT_EQ(run("exec 2>/dev/null; ulimit -n 64"), 1);
}

TEST(WorkerGroup, OwnerEnds_ItsExitCodeAndTemporaryFilesGone) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::setenv("TMPDIR", directory.path().c_str(), 1), 0);
  const pid_t host = StartHost({"2", "/bin/sh", "-c", "exit $((LOCAL_RANK * 5))"});
  int status = 0;
  ASSERT_EQ(::waitpid(host, &status, 0), host);
  ::unsetenv("TMPDIR");
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace ddl
