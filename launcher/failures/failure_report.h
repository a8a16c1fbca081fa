// What a user is told when workers failed. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_FAILURE_REPORT_H_
#define DDLAUNCH_LAUNCHER_FAILURES_FAILURE_REPORT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "agent/core/types.h"

namespace ddl {

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

#endif  // DDLAUNCH_LAUNCHER_FAILURES_FAILURE_REPORT_H_
