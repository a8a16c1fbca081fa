// Rendezvous: the state machine by which a job's nodes meet. Pure: it owns no
// thread, clock, socket or random number, and logs nothing. Every decision is
// an effect, with a reason.
//
//                 last node joined,
//                 plan solved, stored
//   gathering ---------------------------> running
//       ^  |                                |   |
//       |  | join timeout,                  |   | every node succeeded
//       |  | plan impossible                |   |
//       |  +--------------> ended <---------|---+
//       |                     ^             | a worker failed, a node was lost
//       |    budget spent,    |             | or left, the user stopped it
//       |    user stopped it  |             v
//       +-----------------------------  stopping
//            every member's workers are gone (RoundStopped, or the node lost)
//
// Ordering contract for the shell that drives it:
//  - One thread calls Step. Events are given in the order in which they
//    happened on a stream; `now` never goes back.
//  - Effects are carried out in the order returned. Persist is answered by the
//    event StoreDone when durable; until then the core holds back whatever
//    depends on it (no RoundStart before its round number is stored).
//  - A Reply to an agent without a stream is dropped: the core brings a
//    returning agent up to date itself.
//  - Welcome, RoundStart, RoundStop and JobDone are repeated to an agent that
//    reconnects with the same incarnation.
//
// Invariants, of each job (tests/sim checks them after every step): at most one
// live round; a round's ranks are 0..world-1, each once, contiguous on a node;
// every member got the same plan, world, master and restart count; nothing from
// a stale round or incarnation is accepted; exactly one result.
#ifndef DDLAUNCH_AGENT_CORE_RENDEZVOUS_H_
#define DDLAUNCH_AGENT_CORE_RENDEZVOUS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/base/clock.h"
#include "agent/core/types.h"

namespace ddl::core {

struct Options {
  Duration heartbeat_interval = std::chrono::seconds(1);
  // Silence after which an agent is lost.
  Duration heartbeat_timeout = std::chrono::seconds(5);
  // Time to come back after a broken stream.
  Duration reconnect_grace = std::chrono::seconds(1);
  // On top of an agent's own stop grace before it is given up.
  Duration stop_margin = std::chrono::seconds(5);
  // How long an ended job's record answers late comers.
  Duration forget_after = std::chrono::seconds(30);
};

class Job;  // job.h

// All jobs of one coordinator. Not thread safe.
class Rendezvous {
 public:
  explicit Rendezvous(Options options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  [[nodiscard]] Effects Step(Instant now, const Event& event);

  [[nodiscard]] std::size_t num_jobs() const;
  // Null when unknown. For tests and for status pages.
  [[nodiscard]] const Job* FindJob(const std::string& job_id) const;

 private:
  const Options options_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_RENDEZVOUS_H_
