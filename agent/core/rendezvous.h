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
//    happened on a stream; `now` never goes back. Words that are waiting go
//    before timers that are due, so that a shell that slept loses nobody.
//  - An agent has one stream. When a newer one of the same incarnation replaces
//    it, the old one ends without AgentDisconnected.
//  - Effects are carried out in the order returned. Persist is answered by the
//    event StoreDone when durable; until then the core holds back whatever
//    depends on it (no RoundStart before its round number is stored).
//  - A Reply to an agent without a stream is dropped: the core brings a
//    returning agent up to date itself.
//  - To an agent that reconnects with the same incarnation its current state is
//    repeated: Welcome, then RoundStart, RoundStop or JobDone. What it said or
//    was told on the broken stream may be lost, so it says again what is still
//    open (its result, RoundStopped, keys, barriers, its proposal); every word
//    may be repeated. It answers a RoundStop with RoundStopped even if it never
//    saw that round start.
//  - An agent that is given up while its stream stands is told so by Rejected.
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
#include <vector>

#include "agent/base/clock.h"
#include "agent/core/gone_agents.h"
#include "agent/core/options.h"
#include "agent/core/types.h"

namespace ddl::core {

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
  // The job the event is for; null, with the refusal said, if there is none
  // and none is to be made.
  Job* FindOrMake(const Event& event, Effects& effects);
  Job* MakeJob(const AgentConnected& hello, Effects& effects);
  // Other jobs that wait for nodes, at most kMaxNamed of them.
  [[nodiscard]] std::vector<std::string> OtherWaitingJobs(const std::string& except) const;

  const Options options_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  GoneAgents gone_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_RENDEZVOUS_H_
