// PollUntil: poll(2) with a point in time instead of milliseconds. Thread safe.
#ifndef DDLAUNCH_LAUNCHER_POLL_UNTIL_H_
#define DDLAUNCH_LAUNCHER_POLL_UNTIL_H_

#include <poll.h>

#include <algorithm>
#include <optional>
#include <span>

#include "agent/base/clock.h"

namespace ddl {

// Returns when one is ready, at `deadline`, or on a signal: the caller looks.
inline void PollUntil(std::span<pollfd> fds, std::optional<Instant> deadline) {
  timespec timeout{};
  if (deadline.has_value()) {
    const Duration left = std::max(*deadline - MonotonicNow(), Duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timeout.tv_sec = seconds.count();
    timeout.tv_nsec = (left - seconds).count();
  }
  ::ppoll(fds.data(), fds.size(), deadline.has_value() ? &timeout : nullptr, nullptr);
}

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_POLL_UNTIL_H_
