// TimerHold: after this process did not run for a while (it was stopped, or
// starved), due timers wait a moment: the words that came meanwhile are still in
// the kernel, and nobody is to be lost for our own absence. A pure value.
#ifndef DDLAUNCH_AGENT_SERVICE_TIMER_HOLD_H_
#define DDLAUNCH_AGENT_SERVICE_TIMER_HOLD_H_

#include <algorithm>
#include <optional>

#include "agent/base/clock.h"

namespace ddl {

class TimerHold {
 public:
  // A loop that runs again more than `patience` late has been absent, and lets
  // timers wait as long again.
  TimerHold(Duration patience, Instant now) : patience_(patience), last_awake_(now) {}

  // When to wake for the next timer.
  [[nodiscard]] Instant WakeFor(Instant next_timer) const {
    return std::max(next_timer, hold_until_);
  }
  // Each time the loop goes on; `next_timer` is what it was to wake for. Returns
  // whether timers that are due may fire.
  bool OnAwake(Instant now, std::optional<Instant> next_timer) {
    if (next_timer.has_value() && now > std::max(WakeFor(*next_timer), last_awake_) + patience_) {
      hold_until_ = now + patience_;
    }
    last_awake_ = now;
    return now >= hold_until_;
  }

 private:
  Duration patience_;
  Instant last_awake_;
  Instant hold_until_{};
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_TIMER_HOLD_H_
