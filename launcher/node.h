// Node: the life of one node of a job, from the first connection to the exit
// code. Joins the rendezvous client, the worker gateway and the worker group in
// one event loop on one thread; nothing in it blocks while workers run.
//
//   joining --RoundStart--> running --RoundStop--> stopping --RoundStopped-->
//      ^                       |                                            |
//      |                       | all workers exited 0: WorkersSucceeded     |
//      +----------- the next RoundStart, or JobDone: leaving <--------------+
#ifndef DDLAUNCH_LAUNCHER_NODE_H_
#define DDLAUNCH_LAUNCHER_NODE_H_

#include <memory>

#include "launcher/launch_config.h"

namespace ddl {

class Supervisor;
class SignalSet;

// Runs this node's part of the job and returns ddlaunch's exit code: 0, the
// root cause's (its own code, or 128 + signal), 128 + signal when the user
// stopped it, 126 / 127 for a program that cannot be executed, else 1; 2 for a
// request that cannot be met. Says on stderr what went wrong.
// Nothing is left to be done then but to end the process, with _exit: two gRPC
// servers and their threads are not taken down one by one, which would take as
// long as the start of the workers.
// REQUIRES: `supervisor` was forked and signals are blocked (see signals.h).
int RunNode(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor, SignalSet& signals);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NODE_H_
