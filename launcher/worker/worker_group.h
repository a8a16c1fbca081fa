// WorkerGroup: the workers of this node, from start to last breath.
//
// It owns the supervisor process, the log pump and the state of each worker,
// and it is driven by one thread's event loop (launcher/node): when poll_fd()
// is readable or deadline() has passed, call OnReady(now). It never blocks, and
// never decides whether to restart: it says what happened.
//
//   idle --Start--> running --(all exited, or Stop + grace + kill)--> idle
//
// A worker that fails does not stop the others by itself: the node tells the
// coordinator, which tells every node to stop. Workers are their own sessions;
// SIGTERM goes to each worker only, the final SIGKILL to everything any of them
// ever started (also what daemonised itself), which is also done after a round
// whose workers all succeeded. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_WORKER_WORKER_GROUP_H_
#define DDLAUNCH_LAUNCHER_WORKER_WORKER_GROUP_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "launcher/launch_config.h"
#include "launcher/logs/log_pump.h"
#include "launcher/process/supervisor_protocol.h"
#include "launcher/round_info.h"

namespace ddl {

class Supervisor;  // supervisor.h

// How long the group waits for what may never come.
struct GroupTimeouts {
  Duration start = std::chrono::seconds(60);      // programs to run; a slow file server
  Duration kill = kKillTimeout;                   // processes to die of SIGKILL
  Duration supervisor = std::chrono::seconds(3);  // to say so, beyond `kill`
  Duration output = std::chrono::seconds(2);      // an exited worker's output to be read
};

class WorkerGroup {
 public:
  // `supervisor` was forked before any thread was started; see supervisor.h.
  WorkerGroup(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor,
              const ConsoleOptions& console = {}, const GroupTimeouts& timeouts = {});
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Asks for every worker of the round and does not wait for their programs to
  // run. A worker that cannot be started is reported by OnReady as an exit with
  // pid 0, once a round (what keeps one from starting keeps the others), and the
  // rest of the round is stopped like after any failure. Its exit_code is 127
  // for a program that is not there, 126 for one that cannot be executed, else 1
  // (no process or descriptor left, no such directory, a file system that takes
  // longer than timeouts.start); its error_text says which.
  // An error here is what is known at once; of such a round OnReady reports no
  // exit, and what had been started is killed: wait for idle().
  // REQUIRES: idle(). Errors: RESOURCE_EXHAUSTED, out of descriptors, with the
  // limit named; UNAVAILABLE, the supervisor is gone; INVALID_ARGUMENT and
  // others, the log directory or a text.
  absl::Status Start(const RoundInfo& round);

  // SIGTERM to each worker now, also to one whose program does not run yet;
  // SIGKILL to all that is left when config.shutdown_timeout has passed. Calling
  // it again changes nothing.
  void Stop(Instant now);
  // SIGKILL to everything at once (the second Ctrl-C).
  void Kill();
  // How long workers may live although this process does nothing any more (it
  // was stopped, it hangs): at `until` the supervisor kills all there are, unless
  // a later call has moved it. Call it before Start, and whenever the right to
  // run them was renewed; the same value again costs nothing. Instant::max(),
  // which is the start, is no limit.
  void SetLease(Instant until);
  // Passes a signal on to each live worker (SIGUSR1, SIGUSR2); SIGSTOP and SIGCONT to
  // all of its process group, as a terminal does.
  void Forward(int signal);

  // Handles what is ready; returns the workers that ended since the last call,
  // in the order in which they ended, with their output already read. A
  // worker's exit is reported after its last line was handed to the console, but
  // at the latest timeouts.output after it, then without an error_text. What
  // does not die of SIGKILL within timeouts.kill is left behind: its pid and
  // state are printed, and a worker among it is reported as if killed.
  // UNAVAILABLE: the supervisor was killed; the workers died with it.
  absl::StatusOr<std::vector<WorkerExit>> OnReady(Instant now);

  // The lease passed in this round, so its workers were killed: their exits by
  // SIGKILL are no failure of theirs. Known before the first of those exits.
  [[nodiscard]] bool lease_passed() const;
  // No worker and nothing started by one is left, but what was left behind.
  [[nodiscard]] bool idle() const;
  [[nodiscard]] int poll_fd() const;
  [[nodiscard]] std::optional<Instant> deadline() const;

  // Whole lines of ddlaunch's own on the console's stderr, between the workers'.
  // Thread safe.
  void Print(std::string lines);
  // Waits, at most `timeout`, until the console has taken all output; true: it
  // has.
  bool FlushConsole(Duration timeout);
  // Where this job's log files are; empty: nowhere (yet).
  [[nodiscard]] std::string log_directory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_WORKER_GROUP_H_
