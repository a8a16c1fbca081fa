// Events as JSON lines, in the names and the shape of torchrun's
// --event-log-handler=console (torch/distributed/elastic/events), for what
// watches its output. Three differences: `timestamp` is the time of the event,
// where torchrun writes 0; a worker's end is told when it happens, torchrun tells
// it at the job's; an agent that fails says FAILED. Pure.
#ifndef DDLAUNCH_LAUNCHER_LOGS_EVENT_LOG_H_
#define DDLAUNCH_LAUNCHER_LOGS_EVENT_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/clock.h"
#include "launcher/launch_config.h"
#include "launcher/round_info.h"

namespace ddl {

enum class EventState : std::uint8_t { kRendezvous, kStart, kSucceeded, kFailed, kTerminated };

// A moment, by the monotonic clock and by the wall's (seconds since 1970).
struct Moment {
  Instant instant{};
  std::int64_t wall_time_s = 0;
};

class EventLog {
 public:
  // `config` must outlive this.
  EventLog(const LaunchConfig& config, std::string host, Instant started_at);

  // From here on events are of this round.
  void SetRound(const RoundInfo& round) { round_ = round; }

  // One line with its '\n'. `duration` is how long what is told of took;
  // `raw_error` empty: none.
  [[nodiscard]] std::string OfAgent(EventState state, std::optional<Duration> duration,
                                    std::string_view raw_error, Moment now) const;
  // A worker of this round starts. Its pid is not known yet: worker_id is null.
  [[nodiscard]] std::string OfStart(std::int32_t local_rank, Moment now) const;
  // A worker has ended, by itself or (kTerminated) because it was told to.
  [[nodiscard]] std::string OfExit(EventState state, const WorkerExit& exit, Moment now) const;

 private:
  struct Source;
  [[nodiscard]] std::string Line(EventState state, const Source& source, Moment now) const;

  const LaunchConfig& config_;
  const std::string host_;
  const Instant started_at_;
  std::optional<RoundInfo> round_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_EVENT_LOG_H_
