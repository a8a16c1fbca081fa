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

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "launcher/launch_config.h"
#include "launcher/worker/log_pump.h"

namespace ddl {

class Supervisor;  // supervisor.h

// This node's place in a round: what a worker's environment is made from.
struct RoundInfo {
  std::int64_t round = 0;
  std::int32_t restart_count = 0;
  std::int32_t max_restarts = 0;
  std::int32_t node_rank = 0;
  std::int32_t num_nodes = 1;
  std::int32_t first_rank = 0;
  std::int32_t nproc = 1;
  std::int32_t world_size = 1;
  std::string master_addr;
  std::uint16_t master_port = 0;
  std::string gateway;  // "unix:/path": DDL_GATEWAY
  std::string job_id;   // TORCHELASTIC_RUN_ID, DDL_JOB_ID
  std::optional<plan::Plan> plan;
};

// How one worker ended.
struct WorkerExit {
  std::int32_t local_rank = 0;
  std::int32_t rank = 0;
  std::int64_t pid = 0;
  std::int32_t exit_code = 0;  // when term_signal is 0
  std::int32_t term_signal = 0;
  std::int64_t wall_time_s = 0;  // since 1970
  std::string error_text;        // error.json's message, or the last stderr lines
  std::string error_file;        // empty: none was written
  [[nodiscard]] bool ok() const { return exit_code == 0 && term_signal == 0; }
};

class WorkerGroup {
 public:
  // `supervisor` was forked before any thread was started; see supervisor.h.
  WorkerGroup(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor,
              const ConsoleOptions& console = {});
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Spawns every worker of the round. On an error none is left running.
  // REQUIRES: idle(). Errors: NOT_FOUND / PERMISSION_DENIED, the program cannot
  // be executed (exit codes 127 / 126, D1); RESOURCE_EXHAUSTED, out of
  // processes or descriptors, with the limit named; UNAVAILABLE, the
  // supervisor is gone; INVALID_ARGUMENT, the directory or the log directory;
  // DEADLINE_EXCEEDED, the program's file system hangs.
  absl::Status Start(const RoundInfo& round);

  // SIGTERM to each worker now; SIGKILL to all that is left when
  // config.shutdown_timeout has passed. Calling it again changes nothing.
  void Stop(Instant now);
  // SIGKILL to everything at once (the second Ctrl-C).
  void Kill();
  // Passes a signal on to each live worker (SIGUSR1, SIGUSR2).
  void Forward(int signal);

  // Handles what is ready; returns the workers that ended since the last call,
  // in the order in which they ended, with their output already read. A
  // worker's exit is reported after its last line was handed to the console.
  // UNAVAILABLE: the supervisor was killed; the workers died with it.
  absl::StatusOr<std::vector<WorkerExit>> OnReady(Instant now);

  // No worker and nothing started by one is left.
  [[nodiscard]] bool idle() const;
  [[nodiscard]] int poll_fd() const;
  [[nodiscard]] std::optional<Instant> deadline() const;

  // Whole lines of ddlaunch's own on the console's stderr, between the workers'.
  // Thread safe.
  void Print(std::string lines);
  // Waits, at most `timeout`, until the console has taken all output.
  // False: it has not.
  bool FlushConsole(Duration timeout);
  // Where this job's log files are; empty: nowhere (yet).
  [[nodiscard]] std::string log_directory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_WORKER_GROUP_H_
