// Job, the life of its rounds: gathering, forming, running, stopping, ending.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/check.h"
#include "agent/core/job.h"
#include "agent/core/membership.h"
#include "agent/core/wording.h"

namespace ddl::core {
namespace {

constexpr std::int32_t kJoinTimeoutExitCode = 1;
// The numbers asked for cannot be had: the user's to mend, as a wrong flag is.
constexpr std::int32_t kPlanImpossibleExitCode = 2;

// Everybody hears of every change up to so many nodes; beyond it only of a
// change by this part of them, or the messages would grow with their square.
constexpr std::size_t kTellEveryChangeUpTo = 64;
constexpr std::size_t kTellChangeByPart = 16;

bool WorthTelling(std::size_t now, std::size_t told) {
  const std::size_t change = now > told ? now - told : told - now;
  return change > (now <= kTellEveryChangeUpTo ? 0 : now / kTellChangeByPart);
}

}  // namespace

// ---- gathering --------------------------------------------------------------

// Fixed size: all or none. Elastic sizes decide here.
std::optional<std::int32_t> Job::NodesToFormWith() const {
  if (num_connected_ < static_cast<std::size_t>(first_.max_nodes)) {
    return std::nullopt;
  }
  return first_.max_nodes;
}

std::vector<const Job::Agent*> Job::Seat(std::int32_t seats) const {
  std::vector<Candidate> candidates;
  std::vector<const Agent*> agents;
  for (const auto& [incarnation, agent] : agents_) {
    if (agent.connected) {
      candidates.push_back(Candidate{agent.arrival, agent.hello.node_rank, agent.held_rank});
      agents.push_back(&agent);
    }
  }
  std::vector<const Agent*> seated;
  for (const std::optional<std::size_t> index : AssignNodeRanks(candidates, seats)) {
    seated.push_back(index.has_value() ? agents[*index] : nullptr);
  }
  return seated;
}

void Job::BeginGathering(Turn& turn) {
  state_ = State::kGathering;
  round_.reset();
  join_timer_.reset();
  num_told_waiting_ = 0;
  for (auto& [incarnation, agent] : agents_) {
    ArmJoin(turn, agent);
  }
  GatherOn(turn, nullptr);
}

void Job::GatherOn(Turn& turn, const Agent* newcomer) {
  if (TryForm(turn)) {
    return;
  }
  const bool tell_all = WorthTelling(num_connected_, num_told_waiting_);
  if (!tell_all && newcomer == nullptr) {
    return;
  }
  const Waiting waiting = MakeWaiting();
  if (!tell_all) {
    Tell(turn, RefOf(*newcomer), waiting);
    return;
  }
  num_told_waiting_ = num_connected_;
  for (const auto& [incarnation, agent] : agents_) {
    if (agent.connected) {
      Tell(turn, RefOf(agent), waiting);
    }
  }
}

void Job::ArmJoin(Turn& turn, Agent& agent) {
  agent.join_deadline = turn.now + agent.hello.join_timeout;
  if (!join_timer_.has_value() || agent.join_deadline < *join_timer_) {
    join_timer_ = agent.join_deadline;
    Arm(turn, TimerKind::kJoin, "", agent.join_deadline);
  }
}

void Job::OnJoinTimer(Turn& turn) {
  if (state_ != State::kGathering && state_ != State::kForming) {
    return;
  }
  const auto first =
      std::min_element(agents_.begin(), agents_.end(), [](const auto& left, const auto& right) {
        return left.second.join_deadline < right.second.join_deadline;
      });
  // Whose deadline it was may have left since.
  if (turn.now < first->second.join_deadline) {
    join_timer_ = first->second.join_deadline;
    Arm(turn, TimerKind::kJoin, "", *join_timer_);
    return;
  }
  End(turn, MakeDone(Reason::kJoinTimeout, kJoinTimeoutExitCode,
                     ExplainJoinTimeout(turn, first->second.hello.join_timeout)));
}

std::string Job::ExplainJoinTimeout(const Turn& turn, Duration waited) const {
  std::string text = absl::StrCat("after ", InSeconds(waited), " ", num_connected_, " of ",
                                  first_.max_nodes, " nodes had joined (", NameHosts(), ")");
  if (state_ == State::kForming) {
    return absl::StrCat(text, ", but round ", round_->number, " could not be stored");
  }
  std::vector<std::int32_t> missing;
  const std::vector<const Agent*> seated = Seat(first_.max_nodes);
  for (std::size_t rank = 0; rank < seated.size(); ++rank) {
    if (seated[rank] == nullptr) {
      missing.push_back(static_cast<std::int32_t>(rank));
    }
  }
  if (missing.empty()) {
    return absl::StrCat(text, ", but host ", seated.front()->hello.host,
                        ", node rank 0, never told its master port");
  }
  absl::StrAppend(&text, "; missing: node rank ", NameRanks(missing));
  if (!last_departure_.empty()) {
    absl::StrAppend(&text, "; before that, ", last_departure_);
  }
  std::set<std::string> others = other_waiting_;
  for (const std::string& other : turn.other_waiting_jobs()) {
    others.insert(other);
  }
  if (!others.empty()) {
    absl::StrAppend(&text, "; meanwhile job ",
                    NameSome({others.begin(), others.end()}, others.size()),
                    " waited here too: was --rdzv-id meant to be the same?");
  } else {
    absl::StrAppend(&text,
                    "; see that every node was started with the same --rdzv-id, --rdzv-endpoint "
                    "and --nnodes");
  }
  return text;
}

Waiting Job::MakeWaiting() const {
  Waiting waiting;
  waiting.nodes_joined = static_cast<std::int32_t>(num_connected_);
  waiting.nodes_needed = first_.max_nodes;
  waiting.text = absl::StrCat(num_connected_, " of ", first_.max_nodes, " nodes: ", NameHosts());
  if (state_ != State::kGathering) {
    absl::StrAppend(&waiting.text, "; a round is under way, this node takes the next free place");
  } else if (const auto port = agents_.find(port_wanted_from_); port != agents_.end()) {
    absl::StrAppend(&waiting.text, "; waiting for the master port of host ",
                    port->second.hello.host);
  }
  return waiting;
}

std::string Job::NameHosts() const {
  std::vector<std::string> hosts;
  for (const auto& [incarnation, agent] : agents_) {
    if (agent.connected && hosts.size() < kMaxNamed) {
      hosts.push_back(agent.hello.host);
    }
  }
  std::sort(hosts.begin(), hosts.end());
  return NameSome(hosts, num_connected_);
}

// ---- forming ----------------------------------------------------------------

bool Job::TryForm(Turn& turn) {
  port_wanted_from_.clear();
  const std::optional<std::int32_t> num_nodes = NodesToFormWith();
  if (!num_nodes.has_value()) {
    return false;
  }
  const std::vector<const Agent*> seated = Seat(*num_nodes);
  if (std::find(seated.begin(), seated.end(), nullptr) != seated.end()) {
    return false;
  }
  if (seated.front()->master_port == 0) {
    port_wanted_from_ = RefOf(*seated.front()).incarnation;
    return false;
  }
  Round round;
  round.restart_count = restart_count_;
  round.max_restarts = first_.max_restarts;
  std::vector<std::string> hosts;
  for (const Agent* const agent : seated) {
    round.AddMember(RefOf(*agent), agent->hello.host, agent->hello.nproc);
    if (hosts.size() < kMaxNamed) {
      hosts.push_back(agent->hello.host);
    }
  }
  auto agreed = plan_.ForWorld(round.world_size);
  if (!agreed.ok()) {
    End(turn, MakeDone(Reason::kPlanImpossible, kPlanImpossibleExitCode,
                       std::string(agreed.status().message())));
    return true;
  }
  round.agreed = *std::move(agreed);
  round.number = ++last_round_;
  state_ = State::kForming;
  PersistNow(turn, /*ended=*/false);
  round.persist_sequence = last_sequence_;
  std::string text = absl::StrCat("round ", round.number, ": ", seated.size(), " nodes (",
                                  NameSome(hosts, seated.size()), "), ", round.world_size,
                                  " ranks, restart ", restart_count_, " of ", first_.max_restarts);
  if (round.agreed.plan.has_value()) {
    absl::StrAppend(&text, ", ", plan::Describe(*round.agreed.plan));
  }
  round_ = std::move(round);
  Say(turn, Reason::kRoundFormed, std::move(text));
  return true;
}

// A member went before the round began. Its number is used up.
void Job::AbandonForming(Turn& turn) {
  Say(turn, Reason::kNodeLost,
      absl::StrCat("round ", round_->number, " is given up before it began"));
  state_ = State::kGathering;
  round_.reset();
  num_told_waiting_ = 0;
  GatherOn(turn, nullptr);
}

void Job::On(Turn& turn, const StoreDone& done) {
  if (state_ == State::kForming && round_->persist_sequence == done.sequence) {
    StartRound(turn);
  }
}

void Job::StartRound(Turn& turn) {
  state_ = State::kRunning;
  join_timer_.reset();
  last_departure_.clear();
  plan_.RoundStarted(round_->agreed, round_->world_size);
  for (auto& [incarnation, agent] : agents_) {
    const Member* const member = round_->FindMember(incarnation);
    agent.held_rank = member == nullptr ? std::nullopt : std::optional(member->node_rank);
  }
  // Members cannot have gone: forming would have been given up.
  const Agent& master = agents_.at(round_->members.front().agent.incarnation);
  round_->master_addr = master.hello.address;
  round_->master_port = master.master_port;
  for (const Member& member : round_->members) {
    Tell(turn, member.agent, round_->StartFor(member));
  }
}

// ---- running ----------------------------------------------------------------

void Job::On(Turn& turn, const WorkerFailed& failed) {
  const Member* const member = HearMember(turn, failed.agent, failed.round, "worker failed");
  if (member == nullptr) {
    return;
  }
  WorkerFailure failure = failed.failure;
  if (failure.host.empty()) {
    failure.host = member->host;
  }
  std::string text = Describe(failure);
  if (state_ == State::kStopping) {
    ++round_->num_secondary_failures;
    Say(turn, Reason::kWorkerFailed, absl::StrCat("secondary: ", text));
    return;
  }
  if (restart_count_ < first_.max_restarts) {
    absl::StrAppend(&text, "; restart ", restart_count_ + 1, " of ", first_.max_restarts,
                    " follows");
    BeginStop(turn, Reason::kWorkerFailed, text, std::move(failure), std::nullopt);
    return;
  }
  const bool had_budget = first_.max_restarts > 0;
  if (had_budget) {
    absl::StrAppend(&text, "; all ", first_.max_restarts, " restarts are used up");
  }
  JobDone done = MakeDone(had_budget ? Reason::kRestartsExhausted : Reason::kWorkerFailed,
                          ExitCodeOf(failure), text);
  done.root_cause = failure;
  BeginStop(turn, Reason::kWorkerFailed, text, std::move(failure), std::move(done));
}

void Job::On(Turn& turn, const WorkersSucceeded& succeeded) {
  Member* const member = HearRunning(turn, succeeded.agent, succeeded.round, "workers succeeded");
  if (member == nullptr || member->succeeded) {
    return;
  }
  member->succeeded = true;
  ++round_->num_succeeded;
  Say(turn, Reason::kAllSucceeded,
      absl::StrCat("all workers of host ", member->host, " (node rank ", member->node_rank,
                   ") succeeded: ", round_->num_succeeded, " of ", round_->members.size(),
                   " nodes"));
  if (round_->num_succeeded == round_->members.size()) {
    End(turn, MakeDone(Reason::kAllSucceeded, 0, "all workers succeeded"));
  }
}

// ---- stopping ---------------------------------------------------------------

void Job::BeginStop(Turn& turn, Reason reason, const std::string& text,
                    std::optional<WorkerFailure> root_cause, std::optional<JobDone> result) {
  state_ = State::kStopping;
  Stopping& stopping = round_->stopping.emplace();
  stopping.message.round = round_->number;
  stopping.message.reason = reason;
  stopping.message.text = text;
  stopping.message.root_cause = std::move(root_cause);
  stopping.message.will_restart = !result.has_value();
  stopping.result = std::move(result);
  Say(turn, reason, absl::StrCat("round ", round_->number, " stops: ", text));
  Duration longest_grace = Duration::zero();
  for (Member& member : round_->members) {
    const auto agent = agents_.find(member.agent.incarnation);
    if (agent == agents_.end()) {
      member.stopped = true;
      continue;
    }
    ++stopping.num_missing;
    longest_grace = std::max(longest_grace, agent->second.hello.stop_grace);
    Tell(turn, member.agent, stopping.message);
  }
  stopping.deadline = turn.now + longest_grace + options_.stop_margin;
  if (stopping.num_missing == 0) {
    FinishStop(turn);
    return;
  }
  Arm(turn, TimerKind::kStop, "", stopping.deadline);
}

void Job::On(Turn& turn, const RoundStopped& stopped) {
  Member* const member = HearMember(turn, stopped.agent, stopped.round, "round stopped");
  if (member == nullptr) {
    return;
  }
  if (state_ == State::kStopping) {
    MarkStopped(turn, *member);
    return;
  }
  if (member->succeeded) {
    return;
  }
  // It could not reach us and stopped for that; the round cannot go on.
  const std::string text =
      absl::StrCat("host ", member->host, " (node rank ", member->node_rank,
                   ") stopped its workers by itself, cut off from the coordinator");
  BeginStop(turn, Reason::kNodeLost, text, std::nullopt, std::nullopt);
  MarkStopped(turn, *member);
}

void Job::MarkStopped(Turn& turn, Member& member) {
  if (member.stopped) {
    return;
  }
  member.stopped = true;
  DDL_CHECK(round_->stopping->num_missing > 0);
  if (--round_->stopping->num_missing == 0) {
    FinishStop(turn);
  }
}

void Job::OnStopTimer(Turn& turn) {
  if (state_ != State::kStopping || turn.now < round_->stopping->deadline) {
    return;
  }
  std::vector<std::string> silent;
  for (const Member& member : round_->members) {
    if (!member.stopped) {
      silent.push_back(member.agent.incarnation);
    }
  }
  // The last of them ends the stop, and perhaps the job.
  for (const std::string& incarnation : silent) {
    const auto it = agents_.find(incarnation);
    DDL_CHECK(it != agents_.end());
    const std::string text =
        absl::StrCat(Name(it->second), " did not stop its workers in time and is given up");
    Tell(turn, RefOf(it->second), Rejected{Reason::kStopTimeout, text});
    Remove(turn, it, Departure{Reason::kStopTimeout, text});
  }
}

void Job::FinishStop(Turn& turn) {
  const Stopping stopping = *std::move(round_->stopping);
  if (stopping.result.has_value()) {
    JobDone done = *stopping.result;
    if (done.root_cause.has_value() && round_->num_secondary_failures > 0) {
      absl::StrAppend(&done.text, " (", round_->num_secondary_failures, " more failed after it)");
    }
    End(turn, std::move(done));
    return;
  }
  if (stopping.message.reason == Reason::kWorkerFailed) {
    ++restart_count_;
    Say(turn, Reason::kRestarting,
        absl::StrCat("round ", round_->number, " has stopped; restart ", restart_count_, " of ",
                     first_.max_restarts));
  } else {
    Say(turn, Reason::kRestarting,
        absl::StrCat("round ", round_->number,
                     " has stopped; the nodes gather again, which costs "
                     "no restart"));
  }
  BeginGathering(turn);
}

// ---- ending -----------------------------------------------------------------

JobDone Job::MakeDone(Reason reason, std::int32_t exit_code, std::string text) const {
  JobDone done;
  done.reason = reason;
  done.exit_code = exit_code;
  done.text = std::move(text);
  done.restart_count = restart_count_;
  return done;
}

void Job::End(Turn& turn, JobDone result) {
  state_ = State::kEnded;
  round_.reset();
  result_ = std::move(result);
  forget_deadline_ = turn.now + options_.forget_after;
  Say(turn, result_->reason,
      absl::StrCat("the job ends with exit code ", result_->exit_code, ": ", result_->text));
  PersistNow(turn, /*ended=*/true);
  for (const auto& [incarnation, agent] : agents_) {
    Tell(turn, RefOf(agent), *result_);
  }
  Arm(turn, TimerKind::kForget, "", forget_deadline_);
}

void Job::PersistNow(Turn& turn, bool ended) {
  Persist persist;
  persist.job_id = first_.agent.job_id;
  persist.sequence = ++last_sequence_;
  persist.round = last_round_;
  persist.restart_count = restart_count_;
  persist.ended = ended;
  turn.effects.emplace_back(std::move(persist));
}

}  // namespace ddl::core
