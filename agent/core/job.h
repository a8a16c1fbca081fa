// Job: the state machine of one job (the diagram is in rendezvous.h).
//
//   job.cc            dispatch, who may join, who comes back, the user's stop
//   job_places.cc     what becomes of one that joined: member, late node, spare,
//                     survivor of a coordinator that was restarted
//   job_liveness.cc   silence, broken streams, goodbyes: how an agent is lost
//   job_gathering.cc  gathering and forming: when, with whom, and what is said
//   job_rounds.cc     running, stopping, ending
//   job_words.cc      keys, barriers and plan proposals within a round
//   job_memory.cc     out of device memory: the group goes on with a smaller plan
//
// Pure, as rendezvous.h says. Not thread safe.
#ifndef DDLAUNCH_AGENT_CORE_JOB_H_
#define DDLAUNCH_AGENT_CORE_JOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/core/gone_agents.h"
#include "agent/core/membership.h"
#include "agent/core/options.h"
#include "agent/core/plan_agreement.h"
#include "agent/core/round.h"
#include "agent/core/types.h"

namespace ddl::core {

// One step: what it may know of its surroundings, and where its effects go.
// The references outlive the step.
struct Turn {
  Instant now;
  Effects& effects;
  GoneAgents& gone;
  std::int64_t& sequence;  // of the last Persist; counts up over all jobs
  // Other jobs of this coordinator that wait for nodes; bounded.
  std::function<std::vector<std::string>()> other_waiting_jobs;
};

class Job {
 public:
  enum class State : std::uint8_t {
    kGathering,  // nodes are missing, or rank 0's port is not known yet
    kForming,    // all are there; the round's number is being stored
    kRunning,
    kStopping,
    kEnded,
  };

  struct Agent {
    AgentConnected hello;
    std::int64_t arrival = 0;  // counts up in the job
    bool connected = true;
    std::uint32_t master_port = 0;  // 0: not heard yet
    Instant last_heard;
    Instant reconnect_deadline;             // while not connected
    Instant lease_end;                      // the same; its workers live no longer
    Instant join_deadline;                  // while gathering or forming
    std::optional<std::int32_t> held_rank;  // node rank in the last round
    bool leaving = false;                   // its user stopped it; no further round
    // It comes from before this coordinator's start, and may still run this
    // round's workers. 0: it does not.
    std::int64_t surviving_round = 0;
    Instant stop_deadline;  // while surviving_round is set
    // It joined when nobody that knew an earlier round was there any more.
    bool fresh = false;

    // It can be part of the next round.
    [[nodiscard]] bool ready() const { return connected && !leaving && surviving_round == 0; }
  };

  // Makes the job on the terms of its first agent, whose Hello was found valid;
  // it still has to be given to Step. No round forms before `not_before`.
  Job(const AgentConnected& first, const Options& options, Instant not_before);

  // REQUIRES: the event names this job.
  void Step(Turn& turn, const Event& event);

  // Nothing is left to do or to answer: the id may be used again.
  [[nodiscard]] bool forgotten() const { return forgotten_; }
  [[nodiscard]] bool waits_for_nodes() const { return state_ == State::kGathering; }
  [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
  // The record of an ended job goes before its nodes have left.
  void Drop(Turn& turn);
  // Another job that waited at the same time: named if nobody comes here, for
  // two ids that were meant to be one.
  void NoteOtherWaiting(const std::string& job_id);

  // For tests and status pages.
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const std::map<std::string, Agent>& agents() const { return agents_; }
  // The round that forms, runs or stops.
  [[nodiscard]] const std::optional<Round>& round() const { return round_; }
  [[nodiscard]] std::int64_t last_round() const { return last_round_; }
  [[nodiscard]] std::int32_t restart_count() const { return restart_count_; }
  [[nodiscard]] const std::optional<JobDone>& result() const { return result_; }
  // Until then a lost member's workers may live: also for the id's next job.
  [[nodiscard]] Instant not_before() const { return not_before_; }

 private:
  using AgentMap = std::map<std::string, Agent>;  // by incarnation

  // Why a node is no longer part of the job.
  struct Departure {
    Reason reason{};
    std::string text;  // "host b (node rank 1) was lost: silent for 5 s"
  };

  // ---- job.cc
  void On(Turn& turn, const AgentConnected& hello);
  void On(Turn& turn, const AgentHeard& heard);
  void On(Turn& turn, const StopRequested& stop);
  // A stop of this node alone, in an elastic job.
  void TakeOut(Turn& turn, Agent& agent, std::int32_t signal);
  // Whether the agent cannot be part of the job, and why.
  [[nodiscard]] std::optional<Rejected> Refuse(const Turn& turn, const AgentConnected& hello) const;
  [[nodiscard]] std::optional<Rejected> RefuseForPlace(const Turn& turn,
                                                       const AgentConnected& hello) const;
  // Says it to everybody who is ready for a round.
  void TellReady(Turn& turn, const Waiting& waiting) const;
  // Those who wait hear why somebody does not come.
  void TellOfRefusal(Turn& turn, std::string text);
  // Heard from lately. Another may be dead already, and its loss not yet noticed.
  [[nodiscard]] bool IsSurelyThere(const Turn& turn, const Agent& agent) const;
  void Join(Turn& turn, const AgentConnected& hello);
  void Return(Turn& turn, Agent& agent, const AgentConnected& hello);
  // One that comes back may find its --node-rank claimed by its replacement. It
  // goes first, unless the other is in the round already; the loser is refused.
  // False: that was `returning`, which is no more.
  bool SettlePin(Turn& turn, Agent& returning);
  void RepeatState(Turn& turn, Agent& agent);
  // The sender of a word, which counts as heard; null, and said so, if unknown.
  Agent* Hear(Turn& turn, const AgentRef& sender, const char* word);
  // The sender as a member of the live round; null, and said so, if the word is
  // from another round or the sender is not in it.
  Member* HearMember(Turn& turn, const AgentRef& sender, std::int64_t round, const char* word);
  // The same, and the round must not be stopping.
  Member* HearRunning(Turn& turn, const AgentRef& sender, std::int64_t round, const char* word);
  void Say(Turn& turn, Reason reason, std::string text) const;
  static void Tell(Turn& turn, const AgentRef& agent, Message message);
  void Arm(Turn& turn, TimerKind kind, const std::string& subject, Instant deadline) const;
  // Changes the agent and keeps count of those that are ready or survive.
  template <typename Function>
  void Change(Agent& agent, Function function) {
    Count(agent, -1);
    function(agent);
    Count(agent, 1);
  }
  void Count(const Agent& agent, int sign);
  // "host b (node rank 1)"
  [[nodiscard]] std::string Name(const Agent& agent);
  [[nodiscard]] const AgentRef& RefOf(const Agent& agent) const { return agent.hello.agent; }

  // ---- job_places.cc
  // An agent became ready: what is it for?
  void Admit(Turn& turn, Agent& agent);
  // Whether spares would make the round larger, if it ended for them.
  [[nodiscard]] bool CanGrow() const;
  // A running round goes on until the last call after the first late node, or
  // until no more can come, so that nodes which come one by one cost one round
  // and not one each. True: it ends now, to take them in.
  bool GrowOn(Turn& turn);
  void OnLateCall(Turn& turn);
  void Park(const Agent& agent);
  void TellParked(Turn& turn, const Agent& agent) const;
  void ParkAllOthers(Turn& turn);
  void Unpark(Turn& turn, std::int64_t arrival);
  void TellPlace(Turn& turn, const Agent& agent, std::int32_t place) const;
  // What an agent that is no member is told after it came back.
  void RepeatPlace(Turn& turn, Agent& agent);
  void BeginSurvival(Turn& turn, Agent& agent);
  [[nodiscard]] RoundStop MakeSurvivorStop(const Agent& agent) const;
  void EndSurvival(Turn& turn, Agent& agent);
  void OnSurvivorTimer(Turn& turn, const std::string& incarnation);

  // ---- job_liveness.cc
  void On(Turn& turn, const AgentDisconnected& disconnected);
  void On(Turn& turn, const AgentLeft& left);
  void On(Turn& turn, const TimerFired& fired);
  void OnHeartbeatTimer(Turn& turn, const std::string& incarnation);
  void OnReconnectTimer(Turn& turn, const std::string& incarnation);
  // All the time it may take to stop its workers has passed.
  void GiveUpUnstopped(Turn& turn, AgentMap::iterator it);
  // The agent is given up, and its workers may live until its lease ends: it may
  // stand still, and not hear that it was given up.
  void HeedLease(const Agent& agent);
  // A process of it may be at work on a round, for all that is known here.
  [[nodiscard]] bool MayRunWorkers(const Agent& agent);
  // Takes the agent out of the job, with all that follows from it.
  void Remove(Turn& turn, AgentMap::iterator it, const Departure& departure);
  void AfterRemoval(Turn& turn, const Agent& agent, const Departure& departure);
  // A node was lost: the failure for which the round stops may have come of that.
  void ForgiveFailure(Turn& turn, const Agent& lost, const std::string& loss);
  void ForgetAbandoned(Turn& turn);

  // ---- job_gathering.cc
  void On(Turn& turn, const StoreDone& done);
  // How many nodes a round would form with now; nothing: keep gathering.
  [[nodiscard]] std::optional<std::int32_t> NodesToFormWith(Instant now) const;
  // The most nodes, up to `limit`, for whose world there is a plan. Errors: that
  // of the largest world; not even min_nodes have one.
  [[nodiscard]] absl::StatusOr<std::int32_t> FitToPlan(std::int32_t limit) const;
  // Keeps the last call and its timer as the number of nodes demands.
  void UpdateLastCall(Turn& turn);
  // Who could be part of a round, as candidates and, in the same order, themselves.
  [[nodiscard]] std::pair<std::vector<Candidate>, std::vector<const Agent*>> ReadyAgents() const;
  // Agents that are ready, by the node rank they would get.
  [[nodiscard]] std::vector<const Agent*> Seat(std::int32_t seats) const;
  void BeginGathering(Turn& turn);
  // Forms a round if it can, else tells those who wait. `newcomer`: who just
  // came (back) and is told in any case; may be null.
  void GatherOn(Turn& turn, const Agent* newcomer);
  bool TryForm(Turn& turn);
  bool RefuseForPlan(Turn& turn, const absl::Status& refusal);
  void AbandonForming(Turn& turn, Reason reason);
  void StartRound(Turn& turn);
  // Rank 0's worker port, and every worker's address if they are not too long.
  void AddWorkerAddresses(Turn& turn);
  void ArmJoin(Turn& turn, Agent& agent);
  void OnJoinTimer(Turn& turn);
  [[nodiscard]] std::string ExplainJoinTimeout(const Turn& turn, Duration waited) const;
  [[nodiscard]] std::string NameMissing() const;
  [[nodiscard]] Waiting MakeWaiting(Instant now) const;
  // "1 of 2 nodes", "1 of 2 to 4 nodes"
  [[nodiscard]] std::string CountNodes() const;
  [[nodiscard]] std::string NameHosts() const;

  // ---- job_rounds.cc
  void On(Turn& turn, const WorkerFailed& failed);
  void NoteFurtherFailure(Turn& turn, const AgentRef& from, WorkerFailure failure,
                          Instant happened_at);
  // What a failure makes of the round, or of the job.
  struct Verdict {
    Reason reason{};
    std::string text;
    std::optional<JobDone> result;  // nothing: another round follows
  };
  // Its hint goes by what is left to do.
  [[nodiscard]] Verdict Judge(WorkerFailure& failure);
  [[nodiscard]] std::string DescribeAndWhatFollows(const WorkerFailure& failure) const;
  [[nodiscard]] JobDone MakeFailed(const WorkerFailure& failure, std::string words) const;
  void On(Turn& turn, const WorkersSucceeded& succeeded);
  void On(Turn& turn, const RoundStopped& stopped);
  // `result`: the job ends with it when all have stopped; else they gather again.
  void BeginStop(Turn& turn, Reason reason, const std::string& text,
                 std::optional<WorkerFailure> root_cause, std::optional<JobDone> result);
  void OnStopTimer(Turn& turn);
  // May end the stop, and with it the round: `member` is then gone.
  void MarkStopped(Turn& turn, Member& member);
  void FinishStop(Turn& turn);
  void End(Turn& turn, JobDone result);
  // Returns the sequence number by which StoreDone will answer.
  std::int64_t PersistNow(Turn& turn, bool ended);
  [[nodiscard]] JobDone MakeDone(Reason reason, std::int32_t exit_code, std::string text) const;

  // ---- job_words.cc
  void On(Turn& turn, const KeyWritten& written);
  void On(Turn& turn, const KeyWanted& wanted);
  void On(Turn& turn, const BarrierReached& reached);
  void On(Turn& turn, const PlanProposed& proposed);

  // ---- job_memory.cc
  void On(Turn& turn, const OutOfMemory& report);
  void RevisePlan(Turn& turn, const Member& member, const OutOfMemory& report);
  // A worker ended for lack of memory: lowers the micro-batch of the rounds to come,
  // once in a round, and not below what did not fail. Returns what changes; errors:
  // nothing is left to lower.
  absl::StatusOr<std::string> LearnFromFailure(const WorkerFailure& failure);

  const Options options_;
  const AgentConnected first_;  // the job's terms, and who brought them
  PlanAgreement plan_;

  State state_ = State::kGathering;
  AgentMap agents_;
  std::int32_t num_ready_ = 0;
  std::int32_t num_fresh_ = 0;      // of those that are ready
  std::int32_t num_survivors_ = 0;  // connected or not, that may still run workers
  std::int64_t num_arrivals_ = 0;
  std::map<std::int32_t, std::string> pins_;  // --node-rank -> incarnation

  std::int64_t last_round_ = 0;  // the highest number ever used
  std::int32_t restart_count_ = 0;
  std::optional<Round> round_;
  std::optional<JobDone> result_;
  bool forgotten_ = false;

  // While gathering.
  std::optional<Instant> join_timer_;  // as armed
  std::int32_t num_wanted_;            // a round forms at once when so many are ready
  // A round forms then with those who are ready; or, while one runs, it ends then
  // to take late nodes in.
  std::optional<Instant> last_call_;
  std::optional<Instant> form_timer_;  // as armed
  // No round forms before: agents of a round from before this coordinator's
  // start, of which it knows nothing, have given up by then; or the lease of a
  // lost member has ended.
  Instant not_before_;
  bool recovering_ = false;              // for the first of the two reasons
  std::int32_t num_told_waiting_ = 0;    // the count everybody was told last
  std::string port_wanted_from_;         // incarnation; empty: from nobody
  std::string no_plan_;                  // why those who are ready cannot start
  std::string last_departure_;           // why a node is missing; may be empty
  std::size_t num_told_refusals_ = 0;    // in this gathering
  std::set<std::string> other_waiting_;  // bounded by kMaxNamed
  Instant forget_deadline_;              // once ended

  std::map<std::int64_t, std::string> spares_;  // arrival -> incarnation, while a round lives
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_JOB_H_
