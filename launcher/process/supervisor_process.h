// The supervisor process: parent of all workers. See supervisor.h for why it
// exists; this is its inside. One thread, driven by one epoll.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_PROCESS_H_
#define DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_PROCESS_H_

#include "agent/base/unique_fd.h"

namespace ddl {

// Never returns: ends the process once ddlaunch is gone, no descendant is left
// and the directories it was told of are removed. REQUIRES: called in a freshly
// forked child that has one thread; descriptors 0, 1 and 2 are open.
[[noreturn]] void RunSupervisorProcess(UniqueFd socket);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_PROCESS_H_
