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
// supervisor is killed, the workers die of the parent-death signal, every call
// here answers UNAVAILABLE, and ddlaunch inherits what they had started (it is a
// subreaper too): the caller then calls KillRest until it is done.
//
// The lease is a dead man's switch: a ddlaunch that is frozen cannot end its
// workers when others take over their ranks; the supervisor does when the lease
// passes and no later one has come.
//
// Not thread safe. No call blocks: a request that finds no room waits in a
// queue, which Next() sends. A supervisor that takes nothing for ten seconds is
// given up.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_H_
#define DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_H_

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"
#include "launcher/binding/cpu_list.h"
#include "launcher/process/supervisor_protocol.h"
#include "launcher/process/tree_killer.h"

namespace ddl {

// Descriptors are copied to the worker and stay the caller's.
struct SpawnRequest {
  WorkerId worker = kEveryWorker;  // never used before, not kEveryWorker
  std::vector<std::string> argv;   // argv[0] is the path that is executed
  std::vector<std::string> env;
  std::string cwd;  // empty: ddlaunch's at its start
  CpuList cpus;     // that it is bound to; empty: not bound
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

  // Ends the supervisor, and with it every worker; waits for that, at most a
  // little longer than kKillTimeout.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Answered by kSpawned or kSpawnFailed, later by kExited. Several may be on
  // their way at once. INVALID_ARGUMENT: a zero byte in a text.
  absl::Status Spawn(const SpawnRequest& request);
  absl::Status Signal(WorkerId worker, int signal);
  // Answered by kAllGone with `ticket`, at the latest when `timeout` has passed;
  // of several on their way at once, only the last is answered.
  absl::Status KillAll(WorkerId ticket, Duration timeout);
  // Workers may live until then: at that instant all that live, and later each
  // that is started, gets SIGKILL (kLeasePassed, then the kExited), unless a
  // newer lease has come. Instant::max(), which is the start: no limit.
  absl::Status SetLease(Instant until);
  // `directory` is removed with all in it when ddlaunch has ended, however.
  // INVALID_ARGUMENT: the path is too long.
  absl::Status RemoveAtEnd(const std::string& directory);

  // Sends what waits for room; the next event that is there, nothing if there is
  // none now. Events come before the error.
  absl::StatusOr<std::optional<SupervisorEvent>> Next();
  // Requests wait for room: call Next() then. poll_fd() does not announce it.
  [[nodiscard]] std::optional<Instant> deadline() const;

  // SIGKILL to the supervisor, which does not do its work: it is gone then.
  void GiveUp();
  // Kills what a supervisor that is gone has left behind. Done when it is not
  // kGoesOn; else call it again at next_look().
  // REQUIRES: gone(), and that the supervisor is this process's only child ever.
  TreeKiller::Result KillRest(Instant now);
  [[nodiscard]] const TreeKiller& rest() const { return rest_; }

  [[nodiscard]] int poll_fd() const { return socket_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // It was killed. What it left behind may live: see KillRest.
  [[nodiscard]] bool gone() const { return gone_; }

 private:
  Supervisor(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  absl::Status Send(const SupervisorRequest& request, std::size_t bytes,
                    const std::vector<int>& fds);
  absl::Status SendNow(const std::vector<char>& bytes, const std::vector<int>& fds);
  absl::Status Enqueue(std::vector<char> bytes, const std::vector<int>& fds);
  absl::Status FlushRequests();
  absl::Status Gone();

  struct WaitingRequest {
    std::vector<char> bytes;
    std::vector<UniqueFd> fds;
  };

  pid_t pid_;
  UniqueFd socket_;
  std::deque<WaitingRequest> waiting_;
  Instant no_room_since_{};  // while waiting_ holds some
  Instant last_try_{};
  bool gone_ = false;
  bool given_up_ = false;  // by us
  TreeKiller rest_;
  bool rest_begun_ = false;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_H_
