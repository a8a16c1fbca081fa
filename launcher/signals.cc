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

constexpr std::array kAlways = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

bool IsIgnoredHangup(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return signal == SIGHUP && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalSet::SignalSet(std::vector<int> stop_signals) : stop_signals_(std::move(stop_signals)) {
  std::vector<int> handled(kAlways.begin(), kAlways.end());
  handled.insert(handled.end(), stop_signals_.begin(), stop_signals_.end());
  handled.erase(std::remove_if(handled.begin(), handled.end(), IsIgnoredHangup), handled.end());
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
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

bool SignalSet::IsStop(int signal) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signal) != stop_signals_.end();
}

}  // namespace ddl
