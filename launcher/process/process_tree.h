// The processes below a process, from /proc. For the last SIGKILL, which must
// reach everything a worker ever started. No state; not for other threads'
// children of the calling process while they fork.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_PROCESS_TREE_H_
#define DDLAUNCH_LAUNCHER_PROCESS_PROCESS_TREE_H_

#include <sys/types.h>

#include <vector>

namespace ddl {

// Everything below `root`, parents before their children; zombies too. A
// snapshot: what is forked meanwhile may be missing, so ask again until it is
// empty.
std::vector<pid_t> Descendants(pid_t root);

// The same from each process's parent id, for kernels without
// /proc/<pid>/task/<tid>/children.
std::vector<pid_t> DescendantsByScan(pid_t root);

// 'R', 'S', 'D' (hangs in the kernel), 'Z' (dead, not reaped) and so on, as
// ps(1) names it; '?': there is no such process.
char StateOf(pid_t pid);

// SIGKILL to all of Descendants(root); returns them.
std::vector<pid_t> KillDescendants(pid_t root);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_PROCESS_TREE_H_
