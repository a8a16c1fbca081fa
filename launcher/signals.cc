// Signals by signalfd(2).
#include "launcher/signals.h"

#include <pthread.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "agent/base/check.h"

namespace ddl {
namespace {

constexpr std::array kAlways = {SIGTERM, SIGINT,  SIGQUIT, SIGHUP, SIGUSR1,
                                SIGUSR2, SIGXCPU, SIGPWR,  SIGTSTP};

// Who starts us says so: nohup, a shell without job control.
bool IsToBeIgnored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return (signal == SIGHUP || signal == SIGTSTP) && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalSet::SignalSet(std::vector<int> stop_signals) : stop_signals_(std::move(stop_signals)) {
  std::vector<int> handled(kAlways.begin(), kAlways.end());
  handled.insert(handled.end(), stop_signals_.begin(), stop_signals_.end());
  handled.erase(std::remove_if(handled.begin(), handled.end(), IsToBeIgnored), handled.end());
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : handled) {
    ::sigaddset(&set, signal);
  }
  DDL_CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  // A blocked signal that is ignored is never queued: take the default, which
  // does not act while blocked.
  for (const int signal : handled) {
    std::signal(signal, SIG_DFL);
  }
  std::signal(SIGPIPE, SIG_IGN);
  fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  DDL_CHECK(fd_.valid());
}

std::vector<int> SignalSet::Read() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGTSTP && !IsStop(signal)) {
      Suspend();
    } else {
      signals.push_back(signal);
    }
  }
  return signals;
}

// By the signal's own default effect, which knows when there is no shell that could
// continue us (an orphaned process group): then nothing happens.
void SignalSet::Suspend() const {
  if (suspend_hook_) {
    suspend_hook_(true);
  }
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  std::raise(SIGTSTP);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (suspend_hook_) {
    suspend_hook_(false);
  }
}

bool SignalSet::IsStop(int signal) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signal) != stop_signals_.end();
}

}  // namespace ddl
