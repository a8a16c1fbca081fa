// BlockAllSignals: while it lives, the calling thread takes no signal; a thread
// started meanwhile never does. So signals reach the thread that waits for
// them, and a broken pipe is an error of write(2), not the end of ddlaunch.
#ifndef DDLAUNCH_AGENT_BASE_THREAD_SIGNALS_H_
#define DDLAUNCH_AGENT_BASE_THREAD_SIGNALS_H_

#include <pthread.h>

#include <csignal>

namespace ddl {

class BlockAllSignals {
 public:
  BlockAllSignals() {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &former_);
  }
  ~BlockAllSignals() { ::pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  BlockAllSignals(const BlockAllSignals&) = delete;
  BlockAllSignals& operator=(const BlockAllSignals&) = delete;

 private:
  sigset_t former_{};
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_THREAD_SIGNALS_H_
