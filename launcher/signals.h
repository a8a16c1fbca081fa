// The signals ddlaunch handles, read from a descriptor instead of a handler.
//
// Some stop the job (--signals-to-handle); the others of SIGTERM, SIGINT,
// SIGQUIT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to the workers. A SIGHUP
// that was ignored at start (nohup) does neither.
#ifndef DDLAUNCH_LAUNCHER_SIGNALS_H_
#define DDLAUNCH_LAUNCHER_SIGNALS_H_

#include <vector>

#include "agent/base/unique_fd.h"

namespace ddl {

class SignalSet {
 public:
  // Blocks them in this thread and all it starts, and ignores SIGPIPE.
  // REQUIRES: no other thread runs yet.
  explicit SignalSet(std::vector<int> stop_signals);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // The signals that have come, in order; never blocks.
  [[nodiscard]] std::vector<int> Read() const;
  [[nodiscard]] bool IsStop(int signal) const;

 private:
  std::vector<int> stop_signals_;
  UniqueFd fd_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_SIGNALS_H_
