// Time in the simulated world. The world has one true time, counted from the
// start of the run; each machine has a clock of its own that starts anywhere and
// runs a little too fast or too slow.
#ifndef DDLAUNCH_TESTS_SIM_TIME_H_
#define DDLAUNCH_TESTS_SIM_TIME_H_

#include <chrono>
#include <cstdint>

#include "agent/base/clock.h"

namespace ddl::sim {

// Of the world, since its start.
using Time = Duration;

inline constexpr Time kNever = Time::max();

class Clock {
 public:
  Clock() = default;
  // `rate_ppm`: a million is exact.
  Clock(Duration offset, std::int64_t rate_ppm) : offset_(offset), rate_ppm_(rate_ppm) {}

  [[nodiscard]] Instant Shows(Time world) const {
    return Instant{} + offset_ + Duration(world.count() * rate_ppm_ / kMillion);
  }
  // The first time at which it shows `local`, or later.
  [[nodiscard]] Time When(Instant local) const {
    const std::int64_t run = (local.time_since_epoch() - offset_).count();
    return run <= 0 ? Time::zero() : Time((run * kMillion + rate_ppm_ - 1) / rate_ppm_);
  }
  [[nodiscard]] std::int64_t rate_ppm() const { return rate_ppm_; }

 private:
  static constexpr std::int64_t kMillion = 1'000'000;
  Duration offset_{};
  std::int64_t rate_ppm_ = kMillion;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_TIME_H_
