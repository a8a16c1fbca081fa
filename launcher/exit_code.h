// ddlaunch's exit codes: 0; the root cause's own code, or 128 + its signal; 128
// + signal when the user stopped it; and these.
#ifndef DDLAUNCH_LAUNCHER_EXIT_CODE_H_
#define DDLAUNCH_LAUNCHER_EXIT_CODE_H_

#include "absl/status/status.h"

namespace ddl {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotExecutable = 126;  // as shells do
inline constexpr int kExitNotFound = 127;
inline constexpr int kSignalExitBase = 128;

// For what was found wrong before or while starting a worker.
inline int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kPermissionDenied:
      return kExitNotExecutable;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    default:
      return kExitFailure;
  }
}

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_EXIT_CODE_H_
