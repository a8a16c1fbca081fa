// Checker: what must hold of the core after every step. It keeps its own, much
// simpler account of each job from the events given and the effects returned,
// and never looks at the core's state, except whether a job is still known.
#ifndef DDLAUNCH_TESTS_SIM_CHECKER_H_
#define DDLAUNCH_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/options.h"
#include "agent/core/types.h"
#include "tests/sim/network.h"

namespace ddl::sim {

class Checker {
 public:
  explicit Checker(const core::Options& options) : options_(options) {}

  // `life`: of the coordinator, from 1. `known`: the job still has a record
  // after the step.
  void AfterStep(std::uint32_t life, Instant now, const core::Event& event,
                 const core::Effects& effects, bool known);

  // Empty: all is well.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  void Fail(const std::string& what);

  // Where a node's round comes from; see Census::Group.
  struct RoundOrigin {
    std::uint32_t coordinator_life = 0;
    std::uint32_t job_life = 0;
    bool unwarned = false;
  };
  [[nodiscard]] RoundOrigin OriginOf(NodeId node) const;

 private:
  // An agent, as one life of the coordinator knows it.
  struct Agent {
    std::uint32_t coordinator_life = 0;  // 0: not known
    std::int32_t job = -1;               // index in jobs_
    core::AgentConnected hello;
    bool connected = true;
    bool admitted = false;  // it was told something else than a refusal
    bool gone = false;      // left, given up, or past its grace
    bool leaving = false;   // its user stopped it, or it said goodbye
    bool spare = false;
    std::int64_t surviving_round = 0;  // of a life of the coordinator before
    Instant joined_at;
    Instant disconnected_at;
    Instant last_heard;
    std::uint32_t port = 0;
    std::optional<std::int32_t> held;
  };
  using Starts = std::vector<std::pair<NodeId, core::RoundStart>>;
  // One life of a job, from its first agent until it is forgotten.
  struct Job {
    std::uint32_t coordinator_life = 0;
    core::AgentConnected terms;
    std::vector<NodeId> agents;
    std::int64_t round = 0;          // that started last
    std::int64_t highest_round = 0;  // that anybody ever heard of
    std::int32_t restart_count = 0;
    Starts members;
    std::set<NodeId> stopped;
    std::set<NodeId> succeeded;
    std::map<std::string, std::set<NodeId>> barriers;
    std::map<std::string, std::string> keys;
    std::optional<core::PlanReply> plan;
    // The round's root cause so far, and when it happened.
    std::optional<core::WorkerFailure> cause;
    Instant caused_at;
    // What the round's ranks go by, and what it was solved from.
    std::optional<plan::Plan> in_force;
    plan::Request in_force_request;
    std::int32_t revision = 0;
    std::int64_t unrevised_micro = 0;  // before the first revision
    // Whether lack of memory is why the round stops, and a smaller micro-batch is left.
    bool stops_for_memory = false;
    bool learnt = false;  // in this round
    int num_memory_stops = 0;
    // No plan may have a larger micro-batch again.
    std::optional<std::int64_t> cap;
    std::optional<core::RoundStop> stop;
    Instant stop_at;
    std::optional<core::JobDone> result;
    bool ended = false;  // Persist said so
    std::set<std::int32_t> signals;
    std::int64_t stored_round = 0;
    // While it gathers.
    bool live = false;  // else a round starts next
    Instant gathers_since;
    std::optional<Instant> enough_since;
    std::int32_t wanted = 0;      // as many as stayed or were lost
    bool formed_before = false;   // and given up before it began
    std::int32_t num_formed = 0;  // were ready when the round was formed
    // Agents of a round from before the coordinator's start.
    bool warned = false;
    std::optional<Instant> first_survivor_at;
    bool formed_unwarned = false;
  };
  struct Step {
    std::uint32_t life;
    Instant now;
    const core::Event& event;
    const core::Effects& effects;
    NodeId sender;  // kNobody: not the word of an agent
    Job& job;
  };
  static constexpr NodeId kNobody = ~NodeId{0};

  // ---- checker.cc: which job, and what an event means
  Agent* Find(std::uint32_t life, NodeId node);
  Agent& At(NodeId node);
  Job& JobOf(std::uint32_t life, Instant now, const core::Event& event, NodeId sender);
  void NoteEvent(const Step& step);
  void NoteHello(const Step& step, const core::AgentConnected& hello);
  void NoteWord(const Step& step, Agent& agent);
  void NoteFailure(const Step& step, const core::WorkerFailed& failed);
  void NoteStop(const Step& step, const core::StopRequested& stop, Agent& agent);
  // A word of the past that must change nothing.
  [[nodiscard]] bool IsStale(const Step& step);
  void CheckStale(const Step& step);
  [[nodiscard]] bool IsReady(const Agent& agent) const;
  [[nodiscard]] std::int32_t CountReady(const Job& job);
  [[nodiscard]] bool IsMember(const Job& job, NodeId node) const;
  void NoteGathering(Job& job, Instant now);

  // ---- checker_replies.cc: what agents are told
  void CheckReply(const Step& step, const core::Reply& reply);
  void CheckRejected(Job& job, Agent& agent, const core::Rejected& rejected);
  void CheckRoundStop(const Step& step, NodeId to, Job& job, const core::RoundStop& stop);
  void CheckWords(NodeId to, Job& job, const core::Message& message);
  void CheckSpare(NodeId to, Job& job, const core::Spare& spare);
  void CheckResult(const Step& step, Job& job, const core::JobDone& done);
  void CheckJoinTimeout(const Step& step, Job& job);

  // ---- checker_plan.cc: the plan, and out of memory
  void CheckPlanReply(NodeId to, Job& job, const core::PlanReply& reply);
  void CheckPlanChanged(const Step& step, NodeId to, Job& job, const core::PlanChanged& changed);
  void CheckRevision(const Step& step, Job& job, const core::PlanChanged& changed);
  void NotePlanOfRound(Job& job, const core::RoundStart& start);
  void CheckCap(const Job& job, const plan::Plan& plan);
  void NoteMemoryFailure(Job& job);

  // ---- checker_rounds.cc: a new round
  void CheckFormed(const Step& step, Job& job, const core::Persist& persist);
  void CheckNewRound(const Step& step);
  void CheckMembersGone(const Step& step);
  void CheckSize(const Step& step, const Starts& starts);
  void CheckRanks(const Step& step, const Starts& starts);
  void CheckSticky(const Step& step, const Starts& starts);
  // A member of the last round left, or was given up.
  [[nodiscard]] bool OneIsGone(const Job& job);
  void CheckAgreement(const Step& step, const Starts& starts);
  void BeginRound(const Step& step, const Starts& starts);

  const core::Options options_;
  std::vector<Agent> agents_;                    // by node
  std::vector<Job> jobs_;                        // every life of every job
  std::map<std::string, std::int32_t> current_;  // job id -> index in jobs_
  std::uint32_t coordinator_life_ = 0;
  // sequence -> job and round
  std::map<std::int64_t, std::pair<std::int32_t, std::int64_t>> persisted_;
  std::string violation_;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_CHECKER_H_
