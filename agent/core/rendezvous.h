// Rendezvous: the state machine by which a job's nodes meet. Pure: it owns no
// thread, clock, socket or random number, and logs nothing. Every decision is
// an effect, with a reason.
//
//                 enough nodes joined,
//                 plan solved, stored
//   gathering ---------------------------> running
//       ^  |                                |   |
//       |  | join timeout,                  |   | every node succeeded
//       |  | plan impossible                |   |
//       |  +--------------> ended <---------|---+
//       |                     ^             | a worker failed, a node was lost
//       |    budget spent,    |             | or left, a late node came, the
//       |    user stopped it  |             v user stopped it
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
// When a round forms: with max_nodes at once; between min_nodes and max_nodes
// when last_call_timeout has passed since min_nodes were there. After a round,
// its members are known: the next one forms at once when as many are there, and
// the last call is for those that were lost. While a round runs that has room, late
// nodes wait for others of their kind, until the last call after the first of them
// or until max_nodes are there; then it ends to take them in. A node beyond
// max_nodes is a spare.
//
// A node that was given up may stand still and hear nothing of it. Its workers
// live until its lease ends: heartbeat_timeout after it was last heard. No round of
// its job, nor of the next job of that id, forms before. A broken stream counts as
// the end of the process behind it, unless Options::broken_stream_proves_nothing.
//
// A coordinator that was restarted has no memory. Agents of its last life come
// back with the round they know (AgentConnected::last_round): they are told to
// stop it, rounds count on from there, and no round forms before every other
// agent of that life must have given up.
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
#include <optional>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/core/gone_agents.h"
#include "agent/core/options.h"
#include "agent/core/types.h"

namespace ddl::core {

class Job;    // job.h
struct Turn;  // job.h

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
  using Jobs = std::map<std::string, std::unique_ptr<Job>>;

  void StepJob(Turn& turn, Jobs& jobs, Jobs::iterator it, const Event& event);
  static bool ConcernsPast(const Job& past, const Event& event);
  // The job that is to hear the Hello; jobs_.end(), with the refusal said, if
  // there is none and none is to be made.
  Jobs::iterator FindOrMake(Turn& turn, Jobs::iterator it, const AgentConnected& hello);
  Jobs::iterator MakeJob(Turn& turn, const AgentConnected& hello);
  // A job is over whose lost members' workers may live on.
  void KeepLease(const Turn& turn, const std::string& job_id, const Job& job);
  void MakePast(Turn& turn, Jobs::iterator it);
  // Other jobs that wait for nodes, at most kMaxNamed of them.
  [[nodiscard]] std::vector<std::string> OtherWaitingJobs(const std::string& except) const;

  const Options options_;
  Jobs jobs_;
  // Jobs that have ended and whose id was taken by another, as long as their
  // nodes have not left: each still hears its own result.
  Jobs past_;
  // Until then a job of that id forms no round, see Job::not_before. Those that
  // have passed go when another comes.
  std::map<std::string, Instant> leases_;
  std::optional<Instant> first_event_;
  std::int64_t sequence_ = 0;  // of the last Persist
  GoneAgents gone_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_RENDEZVOUS_H_
