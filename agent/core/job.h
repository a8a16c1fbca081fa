// Job: the state machine of one job (the diagram is in rendezvous.h).
//
//   job.cc           dispatch, who may join, who comes back, the user's stop
//   job_liveness.cc  silence, broken streams, goodbyes: how an agent is lost
//   job_rounds.cc    gathering, forming, running, stopping, ending
//   job_words.cc     keys, barriers and plan proposals within a round
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
#include <vector>

#include "agent/base/clock.h"
#include "agent/core/gone_agents.h"
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
    Instant join_deadline;                  // while gathering or forming
    std::optional<std::int32_t> held_rank;  // node rank in the last round
  };

  // Makes the job on the terms of its first agent, whose Hello was found valid;
  // it still has to be given to Step.
  Job(const AgentConnected& first, const Options& options);

  // REQUIRES: the event names this job.
  void Step(Turn& turn, const Event& event);

  // Nothing is left to do or to answer: the id may be used again.
  [[nodiscard]] bool forgotten() const { return forgotten_; }
  [[nodiscard]] bool waits_for_nodes() const { return state_ == State::kGathering; }
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
  // Whether the agent cannot be part of the job, and why.
  [[nodiscard]] std::optional<Rejected> Refuse(const Turn& turn, const AgentConnected& hello) const;
  [[nodiscard]] std::optional<Rejected> RefuseForPlace(const AgentConnected& hello) const;
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
  // "host b (node rank 1)"
  [[nodiscard]] std::string Name(const Agent& agent);
  [[nodiscard]] const AgentRef& RefOf(const Agent& agent) const { return agent.hello.agent; }

  // ---- job_liveness.cc
  void On(Turn& turn, const AgentDisconnected& disconnected);
  void On(Turn& turn, const AgentLeft& left);
  void On(Turn& turn, const TimerFired& fired);
  void OnHeartbeatTimer(Turn& turn, const std::string& incarnation);
  void OnReconnectTimer(Turn& turn, const std::string& incarnation);
  // Takes the agent out of the job, with all that follows from it.
  void Remove(Turn& turn, AgentMap::iterator it, const Departure& departure);
  void AfterRemoval(Turn& turn, const Agent& agent, const Departure& departure);
  void ForgetAbandoned(Turn& turn);

  // ---- job_rounds.cc
  void On(Turn& turn, const StoreDone& done);
  void On(Turn& turn, const WorkerFailed& failed);
  void On(Turn& turn, const WorkersSucceeded& succeeded);
  void On(Turn& turn, const RoundStopped& stopped);
  // How many nodes a round would form with now; nothing: keep gathering.
  [[nodiscard]] std::optional<std::int32_t> NodesToFormWith() const;
  // Agents that are connected, by the node rank they would get.
  [[nodiscard]] std::vector<const Agent*> Seat(std::int32_t seats) const;
  void BeginGathering(Turn& turn);
  // Forms a round if it can, else tells those who wait. `newcomer`: who just
  // came (back) and is told in any case; may be null.
  void GatherOn(Turn& turn, const Agent* newcomer);
  bool TryForm(Turn& turn);
  void AbandonForming(Turn& turn);
  void StartRound(Turn& turn);
  void ArmJoin(Turn& turn, Agent& agent);
  void OnJoinTimer(Turn& turn);
  [[nodiscard]] std::string ExplainJoinTimeout(const Turn& turn, Duration waited) const;
  [[nodiscard]] Waiting MakeWaiting() const;
  [[nodiscard]] std::string NameHosts() const;
  // `result`: the job ends with it when all have stopped; else they gather again.
  void BeginStop(Turn& turn, Reason reason, const std::string& text,
                 std::optional<WorkerFailure> root_cause, std::optional<JobDone> result);
  void OnStopTimer(Turn& turn);
  // May end the stop, and with it the round: `member` is then gone.
  void MarkStopped(Turn& turn, Member& member);
  void FinishStop(Turn& turn);
  void End(Turn& turn, JobDone result);
  void PersistNow(Turn& turn, bool ended);
  [[nodiscard]] JobDone MakeDone(Reason reason, std::int32_t exit_code, std::string text) const;

  // ---- job_words.cc
  void On(Turn& turn, const KeyWritten& written);
  void On(Turn& turn, const KeyWanted& wanted);
  void On(Turn& turn, const BarrierReached& reached);
  void On(Turn& turn, const PlanProposed& proposed);

  const Options options_;
  const AgentConnected first_;  // the job's terms, and who brought them
  PlanAgreement plan_;

  State state_ = State::kGathering;
  AgentMap agents_;
  std::size_t num_connected_ = 0;
  std::int64_t num_arrivals_ = 0;
  std::map<std::int32_t, std::string> pins_;  // --node-rank -> incarnation

  std::int64_t last_round_ = 0;  // the highest number ever stored
  std::int64_t last_sequence_ = 0;
  std::int32_t restart_count_ = 0;
  std::optional<Round> round_;
  std::optional<JobDone> result_;
  bool forgotten_ = false;

  // While gathering.
  std::optional<Instant> join_timer_;    // as armed
  std::size_t num_told_waiting_ = 0;     // the count everybody was told last
  std::string port_wanted_from_;         // incarnation; empty: from nobody
  std::string last_departure_;           // why a node is missing; may be empty
  std::set<std::string> other_waiting_;  // bounded by kMaxNamed
  Instant forget_deadline_;              // once ended
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_JOB_H_
