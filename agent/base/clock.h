// The one notion of time: a monotonic instant, handed to the code that needs
// it. Only shells call MonotonicNow(); pure code gets `now` as an argument.
#ifndef DDLAUNCH_AGENT_BASE_CLOCK_H_
#define DDLAUNCH_AGENT_BASE_CLOCK_H_

#include <chrono>

namespace ddl {

using Duration = std::chrono::nanoseconds;
// Monotonic; comparable within one machine only, never sent to a peer.
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline Instant MonotonicNow() {
  return std::chrono::steady_clock::now();
}

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_CLOCK_H_
