// Options of the rendezvous: the times by which a coordinator judges. A plain
// value.
#ifndef DDLAUNCH_AGENT_CORE_OPTIONS_H_
#define DDLAUNCH_AGENT_CORE_OPTIONS_H_

#include <chrono>
#include <string>

#include "agent/base/clock.h"

namespace ddl::core {

struct Options {
  Duration heartbeat_interval = std::chrono::seconds(1);
  // Silence after which an agent is lost.
  Duration heartbeat_timeout = std::chrono::seconds(5);
  // Time to come back after a broken stream.
  Duration reconnect_grace = std::chrono::seconds(1);
  // Time the store has to make a round's number durable, also when the join
  // timeout passes meanwhile.
  Duration store_timeout = std::chrono::seconds(10);
  // On top of an agent's own stop grace before it is given up.
  Duration stop_margin = std::chrono::seconds(5);
  // How long an ended job's record waits for agents that do not leave. Once
  // all have left it goes at once, so that the id can be used again.
  Duration forget_after = std::chrono::seconds(30);
  // No round forms before so long after the coordinator's first event. One that
  // may have been restarted without memory knows nothing of workers that still
  // run; heartbeat_timeout is enough for all of them to end. Zero: a coordinator
  // that starts with its job, or whose store remembers.
  Duration hold_after_start{};
  // A stream breaks when its agent's process ends, and its workers end with that.
  // It may also break on its way while the process stands still, or cannot hear
  // of it: then its workers live until their lease ends. Set: after a member was
  // lost by a broken stream, the next round waits until heartbeat_timeout after
  // it was last heard. No rank then has two owners even so; but a node that was
  // killed is replaced that much later.
  bool broken_stream_proves_nothing = false;
  // Set: the coordinator lives in a ddlaunch of this job and goes with it. Other
  // jobs may wait, so that a mistyped id is explained, but never run; nor does
  // the id serve again once the job has ended. Empty: it serves every job.
  std::string only_job;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_OPTIONS_H_
