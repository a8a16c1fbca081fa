// The signals ddlaunch handles, read from a descriptor instead of a handler.
//
// SIGTERM, SIGINT, SIGQUIT and SIGHUP stop the job (SIGHUP not when it was
// ignored at start: nohup); SIGUSR1 and SIGUSR2 are passed on to the workers.
#ifndef DDLAUNCH_LAUNCHER_SIGNALS_H_
#define DDLAUNCH_LAUNCHER_SIGNALS_H_

#include <vector>

#include "agent/base/unique_fd.h"

namespace ddl {

class SignalSet {
 public:
  // Blocks them in this thread and all it starts, and ignores SIGPIPE.
  // REQUIRES: no other thread runs yet.
  SignalSet();

  [[nodiscard]] int fd() const { return fd_.get(); }
  // The signals that have come, in order; never blocks.
  [[nodiscard]] std::vector<int> Read() const;

  // "SIGTERM"
  static const char* Name(int signal);

 private:
  UniqueFd fd_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_SIGNALS_H_
