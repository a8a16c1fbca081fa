// Why not posix_spawn: it cannot set the parent-death signal, and a helper
// program that sets it costs each worker a second exec. The supervisor is a
// small process with one thread, so a plain fork is both safe and cheap.
#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace ddl {
namespace {

constexpr int kFirstPrivateFd = 3;
constexpr int kNeverRan = 127;  // seen by nobody: the failure is in the pipe

[[noreturn]] void Fail(int pipe_fd, SpawnStep step, int error) {
  const ExecFailure failure{error, step};
  // A pipe takes so few bytes whole. If it does not, the supervisor is gone and
  // so is this process, by the parent-death signal.
  [[maybe_unused]] const ssize_t written = ::write(pipe_fd, &failure, sizeof(failure));
  ::_exit(kNeverRan);
}

// The pids were taken before the fork, so a supervisor that died since is seen.
void TieToParent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(kNeverRan);
  }
}

[[noreturn]] void Become(const SpawnPayload& payload, const std::array<int, 3>& streams,
                         const InheritedState& inherited, pid_t parent, int pipe_fd) {
  TieToParent(parent);
  ::setsid();  // cannot fail: a fresh process leads no group
  for (int target = 0; target < kFirstPrivateFd; ++target) {
    // The sources are all above 2, so none is overwritten before it is used.
    if (::dup2(streams[static_cast<std::size_t>(target)], target) < 0) {
      Fail(pipe_fd, SpawnStep::kSetUp, errno);
    }
  }
  // All of it is close-on-exec already; this is for what a library opened. Old
  // kernels lack the call, and lose only that second belt.
  constexpr unsigned kCloseOnExec = 1U << 2U;  // CLOSE_RANGE_CLOEXEC
  ::close_range(kFirstPrivateFd, ~0U, static_cast<int>(kCloseOnExec));
  if (::setrlimit(RLIMIT_NOFILE, &inherited.open_files) != 0) {
    Fail(pipe_fd, SpawnStep::kSetUp, errno);
  }
  if (payload.cwd() != nullptr && ::chdir(payload.cwd()) != 0) {
    Fail(pipe_fd, SpawnStep::kChdir, errno);
  }
  if (const auto& mask = payload.cpu_mask();
      !mask.empty() && ::sched_setaffinity(0, mask.size() * sizeof(mask[0]), mask.data()) != 0) {
    Fail(pipe_fd, SpawnStep::kBind, errno);
  }
  ::sigprocmask(SIG_SETMASK, &inherited.signal_mask, nullptr);
  ::execve(payload.argv()[0], payload.argv(), payload.env());
  const int error = errno;
  // Asked here, where a slow file system makes nobody else wait.
  const bool exists = error == ENOENT && ::access(payload.argv()[0], F_OK) == 0;
  Fail(pipe_fd, exists ? SpawnStep::kInterpreter : SpawnStep::kExec, error);
}

}  // namespace

ForkedWorker ForkWorker(const SpawnPayload& payload, const std::array<int, 3>& streams,
                        const InheritedState& inherited) {
  ForkedWorker worker;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    worker.failure = {errno, SpawnStep::kFork};
    return worker;
  }
  worker.exec_pipe.reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  const pid_t self = ::getpid();
  worker.pid = ::fork();
  if (worker.pid < 0) {
    worker.failure = {errno, SpawnStep::kFork};
  }
  if (worker.pid == 0) {
    Become(payload, streams, inherited, self, write_end.get());
  }
  return worker;
}

}  // namespace ddl
