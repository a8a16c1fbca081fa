// Signals by signalfd(2).
#include "launcher/signals.h"

#include <pthread.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstring>

#include "agent/base/check.h"

namespace ddl {

SignalSet::SignalSet() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&set, signal);
  }
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {
    ::sigaddset(&set, SIGHUP);
  }
  DDL_CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  // A blocked signal that is ignored is never queued: take the default, which
  // does not act while blocked.
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) {
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
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

const char* SignalSet::Name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return ::strsignal(signal);
  }
}

}  // namespace ddl
