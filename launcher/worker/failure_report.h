// What a user is told when workers failed, and the exit code that follows from
// it. Pure.
#ifndef DDLAUNCH_LAUNCHER_WORKER_FAILURE_REPORT_H_
#define DDLAUNCH_LAUNCHER_WORKER_FAILURE_REPORT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/core/types.h"

namespace ddl {

// The exit code of a job: its root cause's own, or 128 + the signal that killed
// it; 0 if there was no failure.
[[nodiscard]] int ExitCode(const std::optional<core::WorkerFailure>& root_cause);
// Of a job whose program could not be started: 127 not found, 126 not
// executable, else 1.
[[nodiscard]] int ExitCode(const absl::Status& start_error);

// "SIGKILL"; "signal 64" for one without a name.
[[nodiscard]] std::string SignalName(int signal);

struct FailureReport {
  std::string program;  // as the user wrote it
  core::WorkerFailure root_cause;
  // The others of this node or job, in the order in which they ended; may
  // contain the root cause again, which is then left out.
  std::vector<core::WorkerFailure> others;
};

// How many others are listed; the rest is counted.
inline constexpr std::size_t kMaxListedFailures = 8;

// The summary, as torchrun lays it out; lines end with '\n'. Times are UTC.
[[nodiscard]] std::string FormatFailureReport(const FailureReport& report);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_FAILURE_REPORT_H_
