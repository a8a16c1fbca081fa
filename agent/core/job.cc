// Job, the routing of events and the agents that come and return.
#include "agent/core/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/core/admission.h"
#include "agent/core/wording.h"

namespace ddl::core {
namespace {

constexpr std::uint32_t kMaxPort = 65'535;
// Members, spares, and those whose stream broke and who keep their place for the
// reconnect grace: so many times max_nodes, and some more, are held at most.
constexpr std::size_t kMaxAgentsPerNode = 3;
constexpr std::size_t kMaxAgentsExtra = 16;
constexpr Duration kLongestTimer = std::chrono::minutes(5);

}  // namespace

Job::Job(const AgentConnected& first, const Options& options, Instant not_before)
    : options_(options),
      first_(first),
      plan_(first.plan, first.min_nodes == first.max_nodes ? plan::BatchPolicy::kFail
                                                           : plan::BatchPolicy::kNearest),
      num_wanted_(first.max_nodes),
      not_before_(not_before) {}

void Job::Step(Turn& turn, const Event& event) {
  std::visit([this, &turn](const auto& specific) { On(turn, specific); }, event);
}

void Job::NoteOtherWaiting(const std::string& job_id) {
  if (other_waiting_.size() < kMaxNamed) {
    other_waiting_.insert(job_id);
  }
}

void Job::Say(Turn& turn, Reason reason, std::string text) const {
  turn.effects.emplace_back(Explain{first_.agent.job_id, reason, std::move(text)});
}

void Job::Tell(Turn& turn, const AgentRef& agent, Message message) {
  turn.effects.emplace_back(Reply{agent, std::move(message)});
}

void Job::Arm(Turn& turn, TimerKind kind, const std::string& subject, Instant deadline) const {
  // Never far ahead, so that the timers of a job that is gone go soon; what comes
  // too early is armed again.
  turn.effects.emplace_back(ArmTimer{TimerId{kind, first_.agent.job_id, subject},
                                     std::min(deadline, turn.now + kLongestTimer)});
}

void Job::Count(const Agent& agent, int sign) {
  num_ready_ += agent.ready() ? sign : 0;
  num_fresh_ += agent.ready() && agent.fresh ? sign : 0;
  num_survivors_ += agent.surviving_round != 0 ? sign : 0;
}

std::string Job::Name(const Agent& agent) {
  const Member* const member =
      round_.has_value() ? round_->FindMember(RefOf(agent).incarnation) : nullptr;
  return member == nullptr
             ? absl::StrCat("host ", agent.hello.host)
             : absl::StrCat("host ", agent.hello.host, " (node rank ", member->node_rank, ")");
}

// ---- joining ----------------------------------------------------------------

void Job::On(Turn& turn, const AgentConnected& hello) {
  if (const auto it = agents_.find(hello.agent.incarnation); it != agents_.end()) {
    Return(turn, it->second, hello);
    return;
  }
  if (auto refusal = Refuse(turn, hello)) {
    Say(turn, refusal->reason,
        absl::StrCat("host ", hello.host, " (", ShortIncarnation(hello.agent.incarnation),
                     ") is refused: ", refusal->text));
    if (state_ == State::kGathering) {
      TellOfRefusal(turn, absl::StrCat("host ", hello.host, " was refused: ", refusal->text));
    }
    Tell(turn, hello.agent, *std::move(refusal));
    return;
  }
  Join(turn, hello);
}

void Job::TellOfRefusal(Turn& turn, std::string text) {
  // One that tries again and again is said once; a crowd, in part.
  if (text == last_departure_) {
    return;
  }
  last_departure_ = std::move(text);
  if (num_told_refusals_ >= kMaxNamed) {
    return;
  }
  ++num_told_refusals_;
  Waiting waiting = MakeWaiting(turn.now);
  absl::StrAppend(&waiting.text, "; ", last_departure_);
  TellReady(turn, waiting);
}

std::optional<Rejected> Job::Refuse(const Turn& turn, const AgentConnected& hello) const {
  if (turn.gone.Contains(hello.agent)) {
    return Rejected{Reason::kStaleIncarnation,
                    absl::StrCat("host ", hello.host,
                                 " was taken out of the job before, lost or gone; start ddlaunch "
                                 "there again to rejoin")};
  }
  if (state_ == State::kEnded) {
    return Rejected{Reason::kJobEnded,
                    absl::StrCat("job '", hello.agent.job_id, "' has ended (",
                                 ToString(result_->reason), ": ", result_->text,
                                 ") and its coordinator leaves with it; start again in a moment")};
  }
  if (auto bad = CheckHello(hello)) {
    return bad;
  }
  if (auto differs = CheckAgrees(first_, hello)) {
    return differs;
  }
  return RefuseForPlace(turn, hello);
}

bool Job::IsSurelyThere(const Turn& turn, const Agent& agent) const {
  return agent.connected && !agent.leaving &&
         turn.now - agent.last_heard <= 2 * options_.heartbeat_interval;
}

std::optional<Rejected> Job::RefuseForPlace(const Turn& turn, const AgentConnected& hello) const {
  if (hello.node_rank.has_value()) {
    const auto pin = pins_.find(*hello.node_rank);
    const auto owner = pin == pins_.end() ? agents_.end() : agents_.find(pin->second);
    // One that is silent may be the dead predecessor of this very node: it does
    // not bar the rank. If it comes back it goes first.
    if (owner != agents_.end() && IsSurelyThere(turn, owner->second)) {
      return Rejected{Reason::kNodeRankTaken,
                      absl::StrCat("--node-rank=", *hello.node_rank, " is claimed twice: by host ",
                                   owner->second.hello.host, " (", ShortIncarnation(owner->first),
                                   "), which came first, and by host ", hello.host, " (",
                                   ShortIncarnation(hello.agent.incarnation), ")")};
    }
  }
  // Fewer spares than nodes: as many again are another job with the same id.
  const std::int32_t max_nodes = first_.max_nodes;
  const auto is_full = [&] {
    return num_ready_ >= 2 * max_nodes - 1 &&
           std::count_if(agents_.begin(), agents_.end(), [&](const auto& entry) {
             return IsSurelyThere(turn, entry.second);
           }) >= 2 * max_nodes - 1;
  };
  if (!is_full() &&
      agents_.size() < kMaxAgentsPerNode * static_cast<std::size_t>(max_nodes) + kMaxAgentsExtra) {
    return std::nullopt;
  }
  const std::string spares =
      max_nodes == 1 ? std::string() : absl::StrCat(" and ", Counted(max_nodes - 1, "spare"));
  return Rejected{
      Reason::kJobFull,
      absl::StrCat("job '", hello.agent.job_id, "' has all its ", Counted(max_nodes, "node"),
                   spares, " (", NameHosts(), "); host ", hello.host,
                   " is one too many; if it belongs to another job, give that another --rdzv-id")};
}

void Job::Join(Turn& turn, const AgentConnected& hello) {
  const std::string& incarnation = hello.agent.incarnation;
  Agent& agent = agents_[incarnation];
  agent.hello = hello;
  agent.arrival = num_arrivals_++;
  agent.last_heard = turn.now;
  agent.master_port = hello.master_port;
  agent.fresh = num_ready_ == num_fresh_;
  Count(agent, 1);
  if (hello.node_rank.has_value()) {
    pins_[*hello.node_rank] = incarnation;
  }
  Tell(turn, hello.agent,
       Welcome{options_.heartbeat_interval, options_.heartbeat_timeout, options_.reconnect_grace});
  Say(turn, Reason::kJoined,
      absl::StrCat("host ", hello.host, " (", ShortIncarnation(incarnation), ") joined with ",
                   Counted(hello.nproc, "worker"), ": ", CountNodes()));
  Arm(turn, TimerKind::kHeartbeat, incarnation, turn.now + options_.heartbeat_timeout);
  if (hello.last_round > 0) {
    agent.join_deadline = Instant::max();  // it has all its time to stop first
    BeginSurvival(turn, agent);
    return;
  }
  if (state_ == State::kGathering || state_ == State::kForming) {
    ArmJoin(turn, agent);
  }
  Admit(turn, agent);
}

bool Job::SettlePin(Turn& turn, Agent& returning) {
  if (!returning.hello.node_rank.has_value()) {
    return true;
  }
  std::string& owner = pins_[*returning.hello.node_rank];
  const std::string incarnation = RefOf(returning).incarnation;
  const auto other = agents_.find(owner);
  if (owner == incarnation || other == agents_.end()) {
    owner = incarnation;
    return true;
  }
  const bool owner_is_member = round_.has_value() && round_->FindMember(owner) != nullptr;
  const auto loser = owner_is_member ? agents_.find(incarnation) : other;
  if (!owner_is_member) {
    owner = incarnation;
  }
  const std::string text =
      absl::StrCat("--node-rank=", *returning.hello.node_rank, " is claimed twice: by host ",
                   returning.hello.host, " (", ShortIncarnation(incarnation), ") and by host ",
                   other->second.hello.host, " (", ShortIncarnation(other->first), "); ",
                   Name(loser->second), " must go");
  Tell(turn, RefOf(loser->second), Rejected{Reason::kNodeRankTaken, text});
  Remove(turn, loser, Departure{Reason::kNodeRankTaken, text});
  return !owner_is_member;
}

void Job::Return(Turn& turn, Agent& agent, const AgentConnected& hello) {
  if (!SettlePin(turn, agent)) {
    return;
  }
  agent.last_heard = turn.now;
  if (hello.master_port != 0) {
    agent.master_port = hello.master_port;
  }
  if (!agent.connected) {
    Change(agent, [](Agent& back) { back.connected = true; });
    Arm(turn, TimerKind::kHeartbeat, hello.agent.incarnation,
        turn.now + options_.heartbeat_timeout);
  }
  if (agent.hello.nproc != hello.nproc || agent.hello.host != hello.host ||
      agent.hello.node_rank != hello.node_rank) {
    Say(turn, Reason::kInvalid,
        absl::StrCat(Name(agent), " came back with another introduction; the first stays"));
  }
  Tell(turn, hello.agent,
       Welcome{options_.heartbeat_interval, options_.heartbeat_timeout, options_.reconnect_grace});
  Say(turn, Reason::kJoined, absl::StrCat(Name(agent), " is back on a new stream"));
  RepeatState(turn, agent);
}

void Job::RepeatState(Turn& turn, Agent& agent) {
  const AgentRef& ref = RefOf(agent);
  if (state_ != State::kEnded && agent.surviving_round != 0) {
    Tell(turn, ref, MakeSurvivorStop(agent));
    return;
  }
  const Member* const member = round_.has_value() ? round_->FindMember(ref.incarnation) : nullptr;
  switch (state_) {
    case State::kGathering:
      GatherOn(turn, &agent);
      return;
    case State::kEnded:
      Tell(turn, ref, *result_);
      return;
    case State::kForming:
      break;
    case State::kRunning:
      if (member != nullptr) {
        Tell(turn, ref, round_->StartFor(*member));
        if (round_->revision.has_value()) {
          Tell(turn, ref, *round_->revision);
        }
        return;
      }
      break;
    case State::kStopping:
      if (member != nullptr) {
        if (!member->stopped) {
          Tell(turn, ref, round_->stopping->message);
        }
        return;
      }
      break;
  }
  if (member == nullptr) {
    RepeatPlace(turn, agent);
  }
}

// ---- hearing ----------------------------------------------------------------

Job::Agent* Job::Hear(Turn& turn, const AgentRef& sender, const char* word) {
  const auto it = agents_.find(sender.incarnation);
  if (it == agents_.end()) {
    Say(turn, Reason::kStaleIncarnation,
        absl::StrCat("ignored '", word, "' of ", ShortIncarnation(sender.incarnation),
                     ", which is not part of the job"));
    return nullptr;
  }
  it->second.last_heard = turn.now;
  return &it->second;
}

Member* Job::HearMember(Turn& turn, const AgentRef& sender, std::int64_t round, const char* word) {
  const Agent* const agent = Hear(turn, sender, word);
  if (agent == nullptr) {
    return nullptr;
  }
  const bool live = state_ == State::kRunning || state_ == State::kStopping;
  if (!live || round_->number != round) {
    Say(turn, Reason::kStaleRound,
        absl::StrCat("ignored '", word, "' of host ", agent->hello.host, " in round ", round, ": ",
                     live ? absl::StrCat("the live round is ", round_->number)
                          : std::string("no round is live")));
    return nullptr;
  }
  Member* const member = round_->FindMember(sender.incarnation);
  if (member == nullptr) {
    Say(turn, Reason::kStaleRound,
        absl::StrCat("ignored '", word, "' of host ", agent->hello.host,
                     ", which is not a member of round ", round));
  }
  return member;
}

Member* Job::HearRunning(Turn& turn, const AgentRef& sender, std::int64_t round, const char* word) {
  Member* const member = HearMember(turn, sender, round, word);
  if (member != nullptr && state_ == State::kStopping) {
    Say(turn, Reason::kStaleRound,
        absl::StrCat("ignored '", word, "' of host ", member->host, ": round ", round,
                     " is stopping"));
    return nullptr;
  }
  return member;
}

void Job::On(Turn& turn, const AgentHeard& heard) {
  Agent* const agent = Hear(turn, heard.agent, "heartbeat");
  if (agent == nullptr) {
    return;
  }
  if (agent->hello.node_rank.has_value() && !SettlePin(turn, *agent)) {
    return;
  }
  Tell(turn, heard.agent, HeartbeatAck{});
  if (heard.master_port == 0) {
    return;
  }
  if (heard.master_port > kMaxPort) {
    Say(turn, Reason::kInvalid,
        absl::StrCat(Name(*agent), " says its master port is ", heard.master_port,
                     ", which is no port; ignored"));
    return;
  }
  agent->master_port = heard.master_port;
  if (state_ == State::kGathering && port_wanted_from_ == heard.agent.incarnation) {
    TryForm(turn);
  }
}

void Job::On(Turn& turn, const StopRequested& stop) {
  Agent* const agent = Hear(turn, stop.agent, "stop");
  if (agent == nullptr) {
    return;
  }
  const bool spare = spares_.contains(agent->arrival);
  if (spare || (stop.node_only && first_.min_nodes < first_.max_nodes)) {
    TakeOut(turn, *agent, stop.signal);
    return;
  }
  const std::string text =
      absl::StrCat("stopped by the user on ", Name(*agent), " with signal ", stop.signal);
  JobDone done = MakeDone(Reason::kStoppedByUser, ExitCodeOfSignal(stop.signal), text);
  switch (state_) {
    case State::kGathering:
    case State::kForming:
      End(turn, std::move(done));
      return;
    case State::kRunning:
      BeginStop(turn, Reason::kStoppedByUser, text, std::nullopt, std::move(done));
      return;
    case State::kStopping:
      if (!round_->stopping->result.has_value()) {
        // What they stop for no longer matters: no other round follows.
        round_->stopping->message.will_restart = false;
        round_->stopping->result = std::move(done);
        Say(turn, Reason::kStoppedByUser, absl::StrCat(text, "; no other round follows"));
        return;
      }
      if (!round_->stopping->user_stop.has_value()) {
        round_->stopping->user_stop = std::move(done);
      }
      break;
    case State::kEnded:
      break;
  }
  Say(turn, Reason::kStoppedByUser, absl::StrCat(text, "; the job is ending already"));
}

// It says goodbye itself when its workers are gone.
void Job::TakeOut(Turn& turn, Agent& agent, std::int32_t signal) {
  if (agent.leaving) {
    return;
  }
  const std::string text = absl::StrCat(Name(agent), " leaves: stopped there with signal ", signal);
  Change(agent, [](Agent& leaver) { leaver.leaving = true; });
  Unpark(turn, agent.arrival);
  const bool member = round_.has_value() && round_->FindMember(RefOf(agent).incarnation) != nullptr;
  if (state_ == State::kRunning && member) {
    last_departure_ = text;
    BeginStop(turn, Reason::kNodeLeft, text, std::nullopt, std::nullopt);
    return;
  }
  Say(turn, Reason::kNodeLeft, text);
  if (state_ == State::kForming && member) {
    AbandonForming(turn, Reason::kNodeLeft);
  } else if (state_ == State::kGathering) {
    GatherOn(turn, nullptr);
  }
}

}  // namespace ddl::core
