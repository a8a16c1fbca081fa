// The error file of ddlaunch itself, for whoever started it with
// TORCHELASTIC_ERROR_FILE in its environment (another launcher, a scheduler's
// wrapper): the root cause's, as torchrun passes it up. Thread safe.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_OUTER_ERROR_FILE_H_
#define DDLAUNCH_LAUNCHER_FAILURES_OUTER_ERROR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "agent/core/types.h"

namespace ddl {

// The file that this process was given; empty: none.
std::string OuterErrorPath();

// What is to be in it: the content of the root cause's own error file, at
// `worker_file` if that lies on this node, with message.errorCode; without one,
// the same of what is known. A message that is a mere text stays as it is, as with
// torchrun. The code is, as Python counts exit codes, the one it ended with, or
// minus the signal that ended it.
std::string OuterErrorFile(const core::WorkerFailure& cause, const std::string& worker_file);

// The same for a job that failed without a failure of any worker; the code is that
// of ddlaunch, or minus the signal by which the user stopped it. An empty text is
// replaced by a sentence of what the code means.
std::string OuterErrorFile(const std::string& text, int error_code, std::int64_t wall_time_s);

// Replaces what is there. Never waits for a reader. Errors: as open(2) and
// write(2) say.
absl::Status WriteOuterErrorFile(const std::string& path, const std::string& content);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_OUTER_ERROR_FILE_H_
