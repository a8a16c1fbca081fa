// The signals ddlaunch handles, read from a descriptor instead of a handler.
//
// Some stop the job (--signals-to-handle); the others of SIGTERM, SIGINT,
// SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU and SIGPWR are passed on to the
// workers. A SIGHUP that was ignored at start (nohup) does neither. SIGTSTP (Ctrl-Z) stops this
// process as it would without us, until it is continued (fg, bg), with a hook before
// and after for the workers, which no terminal reaches.
#ifndef DDLAUNCH_LAUNCHER_SIGNALS_H_
#define DDLAUNCH_LAUNCHER_SIGNALS_H_

#include <functional>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"

namespace ddl {

class SignalSet {
 public:
  // Blocks them in this thread and all it starts, and ignores SIGPIPE.
  // REQUIRES: no other thread runs yet.
  explicit SignalSet(std::vector<int> stop_signals);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // The signals that have come, in order, without SIGTSTP: the process is stopped
  // inside this call. Otherwise never blocks.
  [[nodiscard]] std::vector<int> Read() const;
  // Called, by Read(), with true before this process stops and with false when it
  // goes on.
  void SetSuspendHook(std::function<void(bool stopping)> hook) { suspend_hook_ = std::move(hook); }
  [[nodiscard]] bool IsStop(int signal) const;

 private:
  void Suspend() const;

  std::vector<int> stop_signals_;
  std::function<void(bool stopping)> suspend_hook_;
  UniqueFd fd_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_SIGNALS_H_
