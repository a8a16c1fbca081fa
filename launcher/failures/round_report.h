// What a node has to tell the coordinator of a round: its failure that counts, and
// how the round ended here. A message that is sent while the connection is broken is
// lost, so all of it is kept, to be said again after each reconnect. Not thread
// safe; no clock of its own.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_ROUND_REPORT_H_
#define DDLAUNCH_LAUNCHER_FAILURES_ROUND_REPORT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/base/clock.h"
#include "agent/core/types.h"

namespace ddl {

class RoundReport {
 public:
  // Forgets the last one's.
  void Begin(std::int64_t round);

  // Returns what is to be sent now. Kept is the failure that is the most likely to
  // be the root cause: the first that blames no peer, else the first. The
  // coordinator chooses by the same rule among the nodes' choices. Others are only
  // counted there, and need no words.
  [[nodiscard]] core::WorkerFailed Failed(core::WorkerFailure failure, Instant failed_at,
                                          Instant now);

  // WorkersSucceeded or RoundStopped; returns it to be sent now.
  const core::Event& Ended(core::Event outcome);

  // All that is to be said after a reconnect, in this order.
  [[nodiscard]] std::vector<core::Event> Again(Instant now) const;

 private:
  struct Told {
    core::WorkerFailure failure;
    Instant failed_at;
  };

  std::int64_t round_ = 0;
  std::optional<Told> cause_;
  std::optional<core::Event> outcome_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_ROUND_REPORT_H_
