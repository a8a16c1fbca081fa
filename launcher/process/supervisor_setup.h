// What a freshly forked supervisor process changes about itself before it
// serves: descriptors, signals, limits, its session and its name.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_SETUP_H_
#define DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_SETUP_H_

#include "agent/base/unique_fd.h"
#include "launcher/process/spawn.h"

namespace ddl {

// Where the socket to ddlaunch sits from then on.
inline constexpr int kSupervisorSocketFd = 3;

// Moves `socket` there and closes everything else; returns what workers get
// back. REQUIRES: the process has one thread; descriptors 0, 1 and 2 are open.
InheritedState SetUpSupervisor(UniqueFd socket);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_SETUP_H_
