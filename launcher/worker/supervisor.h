// Supervisor: ddlaunch's handle on the process that is the parent of all
// workers.
//
// Why a process of its own, and not posix_spawn from ddlaunch:
//  - Workers must never outlive ddlaunch, whatever kills it. The parent-death
//    signal reaches direct children only; what they started in turn, also what
//    made itself a daemon, needs someone who is still alive, is its subreaper
//    and kills it. ddlaunch cannot do that after its own kill -9.
//  - It is forked from main() before any thread exists, so it may fork freely;
//    with gRPC's threads around, ddlaunch may not. It stays small, so forking
//    it is cheap, and a worker needs one exec, not two through a shim.
//  - The parent-death signal follows the spawning *thread*; here there is one.
//
// If ddlaunch dies, the supervisor sees the end of the socket, kills all
// descendants, removes the directories it was told of, and ends. If the
// supervisor is killed, the workers die of the parent-death signal, ddlaunch
// inherits what they had started (it is a subreaper too) and kills it, and
// every call here answers UNAVAILABLE.
//
// Not thread safe. Calls do not block, unless the supervisor does not read for
// a while; that wait is bounded.
#ifndef DDLAUNCH_LAUNCHER_WORKER_SUPERVISOR_H_
#define DDLAUNCH_LAUNCHER_WORKER_SUPERVISOR_H_

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"
#include "launcher/worker/supervisor_protocol.h"

namespace ddl {

// Descriptors are copied to the worker and stay the caller's.
struct SpawnRequest {
  WorkerId worker = kEveryWorker;  // never used before, not kEveryWorker
  std::vector<std::string> argv;   // argv[0] is the path that is executed
  std::vector<std::string> env;
  std::string cwd;  // empty: ddlaunch's at its start
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
};

class Supervisor {
 public:
  // REQUIRES: the process has one thread; so call it first in main(). Opens
  // /dev/null in place of a standard stream that is closed, so that no pipe of
  // ours lands there. RESOURCE_EXHAUSTED: no process or descriptor left.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Fork();

  // Ends the supervisor, and with it every worker; waits for that, for a few
  // seconds at most.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Answered by kSpawned or kSpawnFailed, later by kExited. Several may be on
  // their way at once. INVALID_ARGUMENT: a zero byte in a text.
  absl::Status Spawn(const SpawnRequest& request);
  absl::Status Signal(WorkerId worker, int signal);
  // Answered by kAllGone.
  absl::Status KillAll();
  // `directory` is removed with all in it when ddlaunch has ended, however.
  // INVALID_ARGUMENT: the path is too long.
  absl::Status RemoveAtEnd(const std::string& directory);

  // The next event that is there; nothing if there is none now.
  absl::StatusOr<std::optional<SupervisorEvent>> Next();
  // The same, but waits for it; nothing when `deadline` has passed.
  absl::StatusOr<std::optional<SupervisorEvent>> Wait(Instant deadline);
  // Events that were read while a request waited for room: poll_fd() does not
  // announce those again.
  [[nodiscard]] bool has_buffered_events() const { return !events_.empty(); }

  [[nodiscard]] int poll_fd() const { return socket_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // It was killed; what it left behind has been killed too.
  [[nodiscard]] bool gone() const { return gone_; }

 private:
  Supervisor(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  absl::Status Send(const SupervisorRequest& request, std::size_t bytes,
                    const std::vector<int>& fds);
  absl::Status ReadEvents();
  absl::Status Gone();

  pid_t pid_;
  UniqueFd socket_;
  std::deque<SupervisorEvent> events_;
  bool gone_ = false;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_SUPERVISOR_H_
