// The picture, by gnuplot where there is one.
#ifndef DDLAUNCH_LAUNCHER_TUNE_DRAWING_H_
#define DDLAUNCH_LAUNCHER_TUNE_DRAWING_H_

#include <string>

#include "absl/status/status.h"
#include "launcher/tune/results.h"

namespace ddl::tune {

// Writes tune.gp, which is `script`, and runs it; it makes tune.svg and tune.png.
// REQUIRES: this process has one thread.
// Errors: INTERNAL, and there is no picture; the message says what to do.
absl::Status Draw(const Results& results, const std::string& script);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_DRAWING_H_
