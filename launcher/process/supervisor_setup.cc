// The order matters: signals are blocked first, so that none ends the process
// half way.
#include "launcher/process/supervisor_setup.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace ddl {
namespace {

constexpr int kSocketFd = kSupervisorSocketFd;

// Nothing of the caller's stays open: `ddlaunch | cat` ends with ddlaunch.
void LetGoOfDescriptors(UniqueFd socket) {
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(null.get(), standard);
  }
  null.reset();  // it may sit where the socket goes
  if (socket.get() != kSocketFd) {
    ::dup3(socket.get(), kSocketFd, O_CLOEXEC);
  } else {
    [[maybe_unused]] const int kept = socket.release();
  }
  ::close_range(kSocketFd + 1, ~0U, 0);
}

// Signals go to ddlaunch; here all stay blocked, SIGCHLD is read. Those ignored
// at start get their default back, for the workers, but for SIGHUP: nohup means
// the workers too. A SIGCHLD ignored by our parent would reap behind our back.
void TakeNoSignals(sigset_t& former_mask) {
  sigset_t all{};
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &former_mask);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (signal != SIGHUP && ::sigaction(signal, nullptr, &action) == 0 &&
        action.sa_handler == SIG_IGN) {
      action.sa_handler = SIG_DFL;
      ::sigaction(signal, &action, nullptr);
    }
  }
}

// A pidfd a worker: more than the usual 1024 descriptors, for large nodes.
void RaiseOpenFiles(rlimit& former) {
  ::getrlimit(RLIMIT_NOFILE, &former);
  const rlimit raised{former.rlim_max, former.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
}

}  // namespace

InheritedState SetUpSupervisor(UniqueFd socket) {
  InheritedState inherited;
  TakeNoSignals(inherited.signal_mask);
  RaiseOpenFiles(inherited.open_files);
  ::setsid();  // out of the terminal's reach, and of a kill of ddlaunch's group
  ::prctl(PR_SET_NAME, "ddl-supervisor");  // so that `pkill ddlaunch` spares it
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  LetGoOfDescriptors(std::move(socket));
  return inherited;
}

}  // namespace ddl
