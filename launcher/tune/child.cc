// A plain fork, for tune is a process of one thread, and posix_spawn has no
// parent-death signal: see child.h.
#include "launcher/tune/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/status/status.h"
#include "agent/base/errno_text.h"
#include "launcher/exit_code.h"

namespace ddl::tune {
namespace {

constexpr int kFileMode = 0666;

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): exec's old contract.
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// What tune changed for itself (signals.h), and what a launcher that was started by
// it would pass on to workers.
void RestoreSignals() {
  for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGTSTP}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void Become(const Child::Options& options, const std::vector<char*>& argv,
                         const std::vector<char*>& environment, int input, int output,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setpgid(0, 0);
  RestoreSignals();
  const bool ready = ::getppid() == parent && ::dup2(input, STDIN_FILENO) >= 0 &&
                     ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(output, STDERR_FILENO) >= 0 &&
                     (options.cwd.empty() || ::chdir(options.cwd.c_str()) == 0);
  if (ready && options.path.empty()) {
    ::execvpe(argv[0], argv.data(), environment.data());
  } else if (ready) {
    ::execve(options.path.c_str(), argv.data(), environment.data());
  }
  ::_exit(kExitNotFound);
}

}  // namespace

absl::StatusOr<Child> Child::Start(const Options& options) {
  UniqueFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  UniqueFd output(
      ::open(options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode));
  if (!input.valid() || !output.valid()) {
    return absl::InternalError(ErrnoText("cannot write " + options.output, errno));
  }
  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> environment = Pointers(options.environment);
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    Become(options, argv, environment, input.get(), output.get(), self);
  }
  if (pid < 0) {
    return absl::InternalError(ErrnoText("cannot start a process", errno));
  }
  return Child(pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Child::Signal(int signal) const {
  if (pid_ > 0) {
    ::kill(pid_, signal);
  }
}

std::optional<int> Child::TryReap() {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) {
    return std::nullopt;
  }
  pid_ = -1;
  pidfd_.reset();
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalExitBase + WTERMSIG(status);
}

}  // namespace ddl::tune
