// Job, how a round comes about: gathering nodes, and forming it when enough are
// there. When that is, NodesToFormWith decides.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/check.h"
#include "agent/base/host.h"
#include "agent/base/limits.h"
#include "agent/core/job.h"
#include "agent/core/membership.h"
#include "agent/core/wording.h"

namespace ddl::core {
namespace {

constexpr std::int32_t kJoinTimeoutExitCode = 1;
// The numbers asked for cannot be had: the user's to mend, as a wrong flag is.
constexpr std::int32_t kPlanImpossibleExitCode = 2;
constexpr std::int32_t kForeignJobExitCode = 2;

// Everybody hears of every change up to so many nodes; beyond it only of a
// change by this part of them, or the messages would grow with their square.
constexpr std::int32_t kTellEveryChangeUpTo = 64;
constexpr std::int32_t kTellChangeByPart = 4;

bool WorthTelling(std::int32_t now, std::int32_t told) {
  const std::int32_t change = now > told ? now - told : told - now;
  return change > (now <= kTellEveryChangeUpTo ? 0 : now / kTellChangeByPart);
}

}  // namespace

// ---- gathering --------------------------------------------------------------

std::optional<std::int32_t> Job::NodesToFormWith(Instant now) const {
  if (num_ready_ < first_.min_nodes || num_survivors_ > 0 || now < not_before_) {
    return std::nullopt;
  }
  const bool called = last_call_.has_value() && now >= *last_call_;
  if (num_ready_ < first_.max_nodes && num_ready_ < num_wanted_ && !called) {
    return std::nullopt;
  }
  return std::min(num_ready_, first_.max_nodes);
}

void Job::UpdateLastCall(Turn& turn) {
  if (num_ready_ < first_.min_nodes) {
    last_call_.reset();
    return;
  }
  if (!last_call_.has_value()) {
    last_call_ = turn.now + first_.last_call_timeout;
  }
  const bool complete = num_ready_ >= std::min(num_wanted_, first_.max_nodes);
  const Instant form_at = complete ? not_before_ : std::max(*last_call_, not_before_);
  if (form_at > turn.now && form_timer_ != form_at) {
    form_timer_ = form_at;
    Arm(turn, TimerKind::kLastCall, "", form_at);
  }
}

std::pair<std::vector<Candidate>, std::vector<const Job::Agent*>> Job::ReadyAgents() const {
  std::vector<Candidate> candidates;
  std::vector<const Agent*> agents;
  for (const auto& [incarnation, agent] : agents_) {
    if (agent.ready()) {
      candidates.push_back(Candidate{agent.arrival, agent.hello.node_rank, agent.held_rank});
      agents.push_back(&agent);
    }
  }
  return {std::move(candidates), std::move(agents)};
}

std::vector<const Job::Agent*> Job::Seat(std::int32_t seats) const {
  const auto [candidates, agents] = ReadyAgents();
  std::vector<const Agent*> seated;
  for (const std::optional<std::size_t> index : AssignNodeRanks(candidates, seats)) {
    seated.push_back(index.has_value() ? agents[*index] : nullptr);
  }
  return seated;
}

void Job::BeginGathering(Turn& turn) {
  state_ = State::kGathering;
  if (round_.has_value()) {
    // Those who stayed are here; only the lost are worth waiting for.
    num_wanted_ = static_cast<std::int32_t>(
        std::count_if(round_->members.begin(), round_->members.end(), [this](const Member& member) {
          const auto agent = agents_.find(member.agent.incarnation);
          return agent == agents_.end() ? !member.left : !agent->second.leaving;
        }));
  }
  if (round_.has_value() && std::all_of(agents_.begin(), agents_.end(),
                                        [](const auto& agent) { return agent.second.fresh; })) {
    Say(turn, Reason::kRestarting, "nobody is left who knew the last round: the job begins anew");
    restart_count_ = 0;
    num_wanted_ = first_.max_nodes;
    plan_.Forget();
  }
  round_.reset();
  spares_.clear();
  join_timer_.reset();
  last_call_.reset();
  form_timer_.reset();
  num_told_waiting_ = 0;
  num_told_refusals_ = 0;
  for (auto& [incarnation, agent] : agents_) {
    ArmJoin(turn, agent);
  }
  GatherOn(turn, nullptr);
}

void Job::GatherOn(Turn& turn, const Agent* newcomer) {
  UpdateLastCall(turn);
  if (TryForm(turn)) {
    return;
  }
  const bool tell_all = WorthTelling(num_ready_, num_told_waiting_);
  if (!tell_all && newcomer == nullptr) {
    return;
  }
  const Waiting waiting = MakeWaiting(turn.now);
  if (!tell_all) {
    Tell(turn, RefOf(*newcomer), waiting);
    return;
  }
  num_told_waiting_ = num_ready_;
  TellReady(turn, waiting);
}

void Job::TellReady(Turn& turn, const Waiting& waiting) const {
  for (const auto& [incarnation, agent] : agents_) {
    if (agent.ready()) {
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
  Instant deadline = first->second.join_deadline;
  if (state_ == State::kForming) {
    deadline = std::max(deadline, round_->store_deadline);
  }
  deadline = std::max(deadline, not_before_);
  // Whose deadline it was may have left since.
  if (turn.now < deadline) {
    join_timer_ = deadline;
    Arm(turn, TimerKind::kJoin, "", *join_timer_);
    return;
  }
  // A last call longer than the join timeout ends with it.
  if (state_ == State::kGathering && num_ready_ >= first_.min_nodes) {
    last_call_ = turn.now;
    if (TryForm(turn)) {
      if (state_ == State::kForming) {  // it may yet be given up
        join_timer_ = round_->store_deadline;
        Arm(turn, TimerKind::kJoin, "", *join_timer_);
      }
      return;
    }
  }
  End(turn, MakeDone(Reason::kJoinTimeout, kJoinTimeoutExitCode,
                     ExplainJoinTimeout(turn, first->second.hello.join_timeout)));
}

std::string Job::ExplainJoinTimeout(const Turn& turn, Duration waited) const {
  std::string text =
      absl::StrCat("after ", InSeconds(waited), last_round_ > 0 ? " of gathering again " : " ",
                   CountNodes(), " had joined (", NameHosts(), ")");
  if (state_ == State::kForming) {
    return absl::StrCat(text, ", but round ", round_->number, " could not be stored");
  }
  if (const auto port = agents_.find(port_wanted_from_); port != agents_.end()) {
    return absl::StrCat(text, ", but host ", port->second.hello.host,
                        ", node rank 0, never told its master port");
  }
  absl::StrAppend(&text, NameMissing());
  if (!no_plan_.empty()) {
    return absl::StrCat(text, "; for so many there is no plan: ", no_plan_);
  }
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

// "; missing: node rank 1"
std::string Job::NameMissing() const {
  if (first_.min_nodes < first_.max_nodes) {
    return num_ready_ < first_.min_nodes
               ? absl::StrCat("; missing: at least ", first_.min_nodes - num_ready_, " more")
               : std::string();
  }
  std::vector<std::int32_t> missing;
  const std::vector<const Agent*> seated = Seat(first_.max_nodes);
  for (std::size_t rank = 0; rank < seated.size(); ++rank) {
    if (seated[rank] == nullptr) {
      missing.push_back(static_cast<std::int32_t>(rank));
    }
  }
  return missing.empty() ? std::string()
                         : absl::StrCat("; missing: node rank ", NameRanks(missing));
}

Waiting Job::MakeWaiting(Instant now) const {
  Waiting waiting;
  waiting.nodes_joined = num_ready_;
  waiting.nodes_needed = first_.max_nodes;
  waiting.text = absl::StrCat(CountNodes(), ": ", NameHosts());
  if (state_ != State::kGathering) {
    absl::StrAppend(&waiting.text,
                    "; a round is ending, this node takes part in the next if there is room");
  } else if (const auto port = agents_.find(port_wanted_from_); port != agents_.end()) {
    absl::StrAppend(&waiting.text, "; waiting for the master port of host ",
                    port->second.hello.host);
  } else if (!no_plan_.empty()) {
    absl::StrAppend(&waiting.text, "; for so many there is no plan: ", no_plan_);
  } else if (recovering_ && now < not_before_) {
    absl::StrAppend(&waiting.text, "; the coordinator was restarted: other nodes of the round ",
                    "before have ", InSeconds(not_before_ - now), " to come back");
  } else if (num_survivors_ > 0) {
    absl::StrAppend(&waiting.text, "; waiting for nodes to stop the round before");
  } else if (now < not_before_) {
    absl::StrAppend(&waiting.text, "; workers of an earlier round may live for ",
                    InSeconds(not_before_ - now), " yet");
  } else if (last_call_.has_value() && *last_call_ > now) {
    absl::StrAppend(&waiting.text, "; starting in ", InSeconds(*last_call_ - now),
                    " unless more come first");
  }
  return waiting;
}

std::string Job::CountNodes() const {
  const std::string range = first_.min_nodes == first_.max_nodes
                                ? absl::StrCat(first_.max_nodes)
                                : absl::StrCat(first_.min_nodes, " to ", first_.max_nodes);
  return absl::StrCat(num_ready_, " of ", range, first_.max_nodes == 1 ? " node" : " nodes");
}

std::string Job::NameHosts() const {
  std::vector<std::string> hosts;
  for (const auto& [incarnation, agent] : agents_) {
    if (hosts.size() == kMaxNamed) {
      break;
    }
    if (agent.ready()) {
      hosts.push_back(agent.hello.host);
    }
  }
  std::sort(hosts.begin(), hosts.end());
  return NameSome(hosts, static_cast<std::size_t>(num_ready_));
}

// ---- forming ----------------------------------------------------------------

bool Job::TryForm(Turn& turn) {
  port_wanted_from_.clear();
  no_plan_.clear();
  const std::optional<std::int32_t> limit = NodesToFormWith(turn.now);
  if (!limit.has_value()) {
    return false;
  }
  if (!options_.only_job.empty() && options_.only_job != first_.agent.job_id) {
    End(turn, MakeDone(Reason::kLimit, kForeignJobExitCode,
                       absl::StrCat("the coordinator here belongs to job '", options_.only_job,
                                    "' and ends with it; job '", first_.agent.job_id,
                                    "' needs another --rdzv-endpoint, or a coordinator for many "
                                    "jobs (ddlaunch coordinator)")));
    return true;
  }
  const absl::StatusOr<std::int32_t> num_nodes = FitToPlan(*limit);
  if (!num_nodes.ok()) {
    return RefuseForPlan(turn, num_nodes.status());
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
  for (const Agent* const agent : seated) {
    round.AddMember(RefOf(*agent), agent->hello.host, agent->hello.nproc);
  }
  auto agreed = plan_.ForWorld(round.world_size);
  if (!agreed.ok()) {  // pinned nodes may seat others than those who were counted
    return RefuseForPlan(turn, agreed.status());
  }
  round.agreed = *std::move(agreed);
  round.number = ++last_round_;
  state_ = State::kForming;
  round.persist_sequence = PersistNow(turn, /*ended=*/false);
  round.store_deadline = turn.now + options_.store_timeout;
  std::string text = absl::StrCat("round ", round.number, ": ",
                                  Counted(static_cast<std::int64_t>(seated.size()), "node"), " (",
                                  round.NameHosts(), "), ", Counted(round.world_size, "rank"),
                                  ", restart ", restart_count_, " of ", first_.max_restarts);
  if (round.agreed.plan.has_value()) {
    absl::StrAppend(&text, ", ", plan::Describe(*round.agreed.plan));
  }
  round_ = std::move(round);
  Say(turn, Reason::kRoundFormed, std::move(text));
  ParkAllOthers(turn);
  return true;
}

absl::StatusOr<std::int32_t> Job::FitToPlan(std::int32_t limit) const {
  const auto [candidates, agents] = ReadyAgents();
  std::vector<std::int32_t> world_sizes = {0};  // by the number of nodes
  for (const std::size_t index : ByEntitlement(candidates)) {
    world_sizes.push_back(world_sizes.back() + agents[index]->hello.nproc);
  }
  absl::Status refusal;
  for (std::int32_t nodes = limit; nodes >= first_.min_nodes; --nodes) {
    const auto agreed = plan_.ForWorld(world_sizes[static_cast<std::size_t>(nodes)]);
    if (agreed.ok()) {
      return nodes;
    }
    refusal = nodes == limit ? agreed.status() : refusal;
  }
  return refusal;
}

// Numbers that never fitted are the user's to mend; once a round has run, the
// nodes that are missing may come back. True: the job has ended.
bool Job::RefuseForPlan(Turn& turn, const absl::Status& refusal) {
  no_plan_ = std::string(refusal.message());
  if (last_round_ > 0) {
    return false;
  }
  End(turn, MakeDone(Reason::kPlanImpossible, kPlanImpossibleExitCode, no_plan_));
  return true;
}

// A member went before the round began, or a node came that can still be taken
// in. The round's number is used up.
void Job::AbandonForming(Turn& turn, Reason reason) {
  Say(turn, reason, absl::StrCat("round ", round_->number, " is given up before it began"));
  state_ = State::kGathering;
  round_.reset();
  spares_.clear();
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
  last_call_.reset();
  form_timer_.reset();
  last_departure_.clear();
  plan_.RoundStarted(round_->agreed, round_->world_size);
  for (auto& [incarnation, agent] : agents_) {
    const Member* const member = round_->FindMember(incarnation);
    agent.held_rank = member == nullptr ? std::nullopt : std::optional(member->node_rank);
    Change(agent, [](Agent& present) { present.fresh = false; });
  }
  // Members cannot have gone: forming would have been given up.
  const Agent& master = agents_.at(round_->members.front().agent.incarnation);
  round_->master_addr = master.hello.address;
  round_->master_port = master.master_port;
  if (!master.hello.worker_ports.empty()) {
    AddWorkerAddresses(turn);
  }
  for (const Member& member : round_->members) {
    Tell(turn, member.agent, round_->StartFor(member));
  }
}

void Job::AddWorkerAddresses(Turn& turn) {
  std::vector<std::string> addresses;
  std::size_t bytes = 0;
  for (const Member& member : round_->members) {
    const AgentConnected& hello = agents_.at(member.agent.incarnation).hello;
    for (const std::uint32_t port : hello.worker_ports) {
      addresses.push_back(JoinHostPort(hello.address, static_cast<std::uint16_t>(port)));
      bytes += addresses.back().size() + limits::kWorkerAddressExtraBytes;
    }
  }
  round_->first_worker_port =
      agents_.at(round_->members.front().agent.incarnation).hello.worker_ports.front();
  if (bytes > limits::kMaxWorkerAddressesBytes) {
    Say(turn, Reason::kLimit,
        absl::StrCat("the addresses of ", addresses.size(), " workers have ", bytes,
                     " bytes; the limit is ", limits::kMaxWorkerAddressesBytes,
                     ": the nodes are told rank 0's only"));
    return;
  }
  round_->worker_addresses = std::make_shared<const std::vector<std::string>>(std::move(addresses));
}

}  // namespace ddl::core
