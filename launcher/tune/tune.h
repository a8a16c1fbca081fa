// ddlaunch tune: finds the micro-batch that suits a program, and proposes a plan.
#ifndef DDLAUNCH_LAUNCHER_TUNE_TUNE_H_
#define DDLAUNCH_LAUNCHER_TUNE_TUNE_H_

#include "launcher/signals.h"
#include "launcher/tune/tune_config.h"

namespace ddl {

// Returns the process's exit code: 0; that of a first trial that failed; 128 + the
// signal that interrupted it. REQUIRES: this process has one thread.
int RunTune(const TuneConfig& config, SignalSet& signals);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_TUNE_TUNE_H_
