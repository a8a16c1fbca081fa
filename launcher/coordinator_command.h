// `ddlaunch coordinator`: the rendezvous of many jobs as a program of its own,
// which outlives them.
#ifndef DDLAUNCH_LAUNCHER_COORDINATOR_COMMAND_H_
#define DDLAUNCH_LAUNCHER_COORDINATOR_COMMAND_H_

#include "launcher/coordinator_config.h"

namespace ddl {

class SignalSet;

// Serves until SIGTERM, SIGINT, SIGQUIT or SIGHUP (see signals.h), then tells the
// agents and returns 0 within about a second; a second signal ends the process at
// once. Returns 1 when it cannot listen. Says on stderr where it listens, and one
// line for the beginning and the end of each job. Ends, like RunNode, with _exit.
int RunCoordinator(const CoordinatorConfig& config, const SignalSet& signals);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_COORDINATOR_COMMAND_H_
