// From fork to exec: what happens in a worker's process before its program
// runs. Called by the supervisor process only, which has a single thread, so
// that fork is safe and so is what is done after it.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_SPAWN_H_
#define DDLAUNCH_LAUNCHER_PROCESS_SPAWN_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <csignal>

#include "agent/base/unique_fd.h"
#include "launcher/process/spawn_payload.h"
#include "launcher/process/supervisor_protocol.h"

namespace ddl {

// What a worker gets back that the supervisor changed for itself.
struct InheritedState {
  sigset_t signal_mask{};
  rlimit open_files{};
};

// What the new process says about an exec that did not come to pass. It comes
// through a pipe that closes at exec: nothing but the end means "it runs".
struct ExecFailure {
  int error = 0;
  SpawnStep step{};
};

struct ForkedWorker {
  pid_t pid = -1;      // -1: `failure` says why
  UniqueFd exec_pipe;  // non-blocking; an ExecFailure or the end
  ExecFailure failure;
};

// A new session whose leader gets SIGKILL when the supervisor ends; standard
// streams from `streams` (0, 1, 2), nothing else open.
ForkedWorker ForkWorker(const SpawnPayload& payload, const std::array<int, 3>& streams,
                        const InheritedState& inherited);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_SPAWN_H_
