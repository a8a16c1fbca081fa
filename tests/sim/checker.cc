// The invariants, checked after every step.
#include "tests/sim/checker.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddl::core::sim {
namespace {

struct JobIdOf {
  std::string operator()(const TimerFired& e) const { return e.id.job_id; }
  std::string operator()(const StoreDone& e) const { return e.job_id; }
  template <typename E>
  std::string operator()(const E& e) const {
    return e.agent.job_id;
  }
};

// The sender and the round of a word that names a round.
struct RoundOf {
  using Result = std::optional<std::pair<std::string, std::int64_t>>;
  template <typename E>
  Result operator()(const E& e) const {
    if constexpr (std::is_same_v<E, WorkerFailed> || std::is_same_v<E, WorkersSucceeded> ||
                  std::is_same_v<E, RoundStopped> || std::is_same_v<E, KeyWritten> ||
                  std::is_same_v<E, KeyWanted> || std::is_same_v<E, BarrierReached> ||
                  std::is_same_v<E, PlanProposed>) {
      return std::pair(e.agent.incarnation, e.round);
    } else {
      return std::nullopt;
    }
  }
};

// "": not the word of an agent.
struct SenderOf {
  template <typename E>
  std::string operator()(const E& e) const {
    if constexpr (std::is_same_v<E, TimerFired> || std::is_same_v<E, StoreDone> ||
                  std::is_same_v<E, AgentDisconnected> || std::is_same_v<E, AgentLeft>) {
      return "";
    } else {
      return e.agent.incarnation;
    }
  }
};

bool IsStaleReason(Reason reason) {
  return reason == Reason::kStaleRound || reason == Reason::kStaleIncarnation;
}

}  // namespace

void Checker::Fail(const std::string& what) {
  if (violation_.empty()) {
    violation_ = what;
  }
}

bool Checker::JobIsOpen(const std::string& job_id) const {
  const auto it = jobs_.find(job_id);
  return it != jobs_.end() && !it->second.result.has_value();
}

void Checker::AfterStep(Instant now, const Event& event, const Effects& effects, bool known) {
  const std::string job_id = std::visit(JobIdOf{}, event);
  const Step step{now, event, effects, jobs_[job_id]};
  if (IsStale(step)) {
    CheckStale(step);
  }
  NoteEvent(step);
  CheckNewRound(step);
  for (const Effect& effect : effects) {
    if (const auto* const reply = std::get_if<Reply>(&effect)) {
      CheckReply(step, *reply);
    } else if (const auto* const persist = std::get_if<Persist>(&effect)) {
      step.job.persisted[persist->sequence] = persist->round;
      if (step.job.ended) {
        Fail("something is stored after the job ended");
      }
      step.job.ended = persist->ended;
    } else if (const auto* const arm = std::get_if<ArmTimer>(&effect)) {
      if (arm->deadline < now) {
        Fail("a timer is armed for the past");
      }
    }
  }
  if (!known) {
    jobs_.erase(job_id);
  }
}

// ---- events -----------------------------------------------------------------

bool Checker::IsStale(const Step& step) const {
  const auto word = std::visit(RoundOf{}, step.event);
  if (!word.has_value()) {
    return false;
  }
  const auto& [sender, round] = *word;
  const auto agent = step.job.agents.find(sender);
  return agent == step.job.agents.end() || agent->second.gone || round != step.job.round ||
         !step.job.members.contains(sender) || step.job.result.has_value();
}

void Checker::CheckStale(const Step& step) {
  bool said = false;
  for (const Effect& effect : step.effects) {
    const auto* const explain = std::get_if<Explain>(&effect);
    if (explain == nullptr) {
      Fail("a word of a stale round or incarnation had an effect");
      return;
    }
    said = said || IsStaleReason(explain->reason);
  }
  if (!said) {
    Fail("a word of a stale round or incarnation was not refused");
  }
}

void Checker::NoteEvent(const Step& step) {
  Job& job = step.job;
  if (const std::string sender = std::visit(SenderOf{}, step.event); !sender.empty()) {
    NoteWord(step, sender);
  }
  if (const auto* const gone = std::get_if<AgentDisconnected>(&step.event)) {
    const auto it = job.agents.find(gone->agent.incarnation);
    if (it != job.agents.end() && it->second.connected) {
      it->second.connected = false;
      it->second.disconnected_at = step.now;
    }
  } else if (const auto* const left = std::get_if<AgentLeft>(&step.event)) {
    job.agents[left->agent.incarnation].gone = true;
  } else if (const auto* const fired = std::get_if<TimerFired>(&step.event)) {
    const auto it = job.agents.find(fired->id.subject);
    if (fired->id.kind == TimerKind::kReconnect && it != job.agents.end() &&
        !it->second.connected &&
        step.now >= it->second.disconnected_at + options_.reconnect_grace) {
      it->second.gone = true;
    }
  } else if (const auto* const stored = std::get_if<StoreDone>(&step.event)) {
    job.stored_round = std::max(job.stored_round, job.persisted[stored->sequence]);
  }
}

void Checker::NoteWord(const Step& step, const std::string& sender) {
  Job& job = step.job;
  if (const auto* const hello = std::get_if<AgentConnected>(&step.event)) {
    Agent& agent = job.agents[sender];
    agent.hello = *hello;
    agent.connected = true;
    agent.last_heard = step.now;
    return;
  }
  const auto it = job.agents.find(sender);
  if (it == job.agents.end()) {
    return;
  }
  it->second.last_heard = step.now;
  if (const auto* const heard = std::get_if<AgentHeard>(&step.event)) {
    it->second.port = heard->master_port == 0 ? it->second.port : heard->master_port;
  } else if (const auto* const stop = std::get_if<StopRequested>(&step.event)) {
    job.signals.insert(stop->signal);
  }
  if (IsStale(step)) {
    return;
  }
  if (const auto* const failed = std::get_if<WorkerFailed>(&step.event)) {
    if (!job.stop.has_value() && !job.first_failure.has_value()) {
      job.first_failure = failed->failure;
    }
  } else if (std::holds_alternative<WorkersSucceeded>(step.event)) {
    job.succeeded.insert(sender);
  } else if (std::holds_alternative<RoundStopped>(step.event)) {
    job.stopped.insert(sender);
  } else if (const auto* const barrier = std::get_if<BarrierReached>(&step.event)) {
    job.barriers[barrier->name].insert(sender);
  } else if (const auto* const key = std::get_if<KeyWritten>(&step.event)) {
    job.keys.emplace(key->key, key->value);
  }
}

// ---- replies ----------------------------------------------------------------

void Checker::CheckReply(const Step& step, const Reply& reply) {
  Job& job = step.job;
  const std::string& to = reply.agent.incarnation;
  const auto agent = job.agents.find(to);
  if (agent == job.agents.end()) {
    Fail(absl::StrCat(to, " is told something, but never came"));
    return;
  }
  if (std::holds_alternative<Rejected>(reply.message)) {
    if (agent->second.admitted) {
      agent->second.gone = true;
    } else {
      job.agents.erase(agent);  // it never was part of the job, and may ask again
    }
    return;
  }
  agent->second.admitted = true;
  if (agent->second.gone) {
    Fail(absl::StrCat(to, " is told something, but is gone"));
  }
  const bool member = job.members.contains(to);
  if (const auto* const stop = std::get_if<RoundStop>(&reply.message)) {
    CheckRoundStop(step, reply, *stop);
  } else if (const auto* const done = std::get_if<JobDone>(&reply.message)) {
    CheckResult(step, *done);
  } else if (const auto* const key = std::get_if<KeyValue>(&reply.message)) {
    const auto written = job.keys.find(key->key);
    if (!member || key->round != job.round || written == job.keys.end() ||
        written->second != key->value) {
      Fail(absl::StrCat(to, " got a value of key ", key->key, " that is not this round's first"));
    }
  } else if (const auto* const barrier = std::get_if<BarrierDone>(&reply.message)) {
    if (!member || barrier->round != job.round ||
        job.barriers[barrier->name].size() != job.members.size()) {
      Fail(absl::StrCat(to, " passed barrier ", barrier->name, " before every member came"));
    }
  } else if (const auto* const plan = std::get_if<PlanReply>(&reply.message)) {
    if (job.plan.has_value() && !(job.plan->plan == plan->plan)) {
      Fail(absl::StrCat(to, " got another plan than its peers"));
    }
    job.plan = *plan;
  }
}

void Checker::CheckRoundStop(const Step& step, const Reply& reply, const RoundStop& stop) {
  Job& job = step.job;
  if (stop.round != job.round || !job.members.contains(reply.agent.incarnation)) {
    Fail(absl::StrCat(reply.agent.incarnation, " must stop round ", stop.round,
                      ", in which it is not"));
  }
  if (!job.stop.has_value()) {
    job.stop = stop;
    job.stop_at = step.now;
  } else if (job.stop->reason != stop.reason || job.stop->root_cause != stop.root_cause) {
    Fail("two members heard of different causes of one stop");
  }
}

void Checker::CheckResult(const Step& step, const JobDone& done) {
  Job& job = step.job;
  if (job.result.has_value()) {
    const auto key = [](const JobDone& of) {
      return std::tie(of.reason, of.exit_code, of.text, of.restart_count);
    };
    if (key(*job.result) != key(done) || job.result->root_cause != done.root_cause) {
      Fail("a job ended in two results");
    }
    return;
  }
  job.result = done;
  std::int32_t connected = 0;
  std::int32_t max_nodes = 0;
  for (const auto& [incarnation, agent] : job.agents) {
    if (!agent.gone) {
      connected += agent.connected && agent.port != 0 ? 1 : 0;
      max_nodes = agent.hello.max_nodes;
    }
  }
  switch (done.reason) {
    case Reason::kAllSucceeded:
      if (done.exit_code != 0 || job.succeeded.size() != job.members.size()) {
        Fail("success, but not every node succeeded");
      }
      return;
    case Reason::kWorkerFailed:
    case Reason::kRestartsExhausted:
      if (!job.first_failure.has_value() || done.exit_code != job.first_failure->exit_code) {
        Fail("the exit code is not that of the round's first failure");
      }
      return;
    case Reason::kStoppedByUser:
      if (!job.signals.contains(done.exit_code - 128)) {
        Fail("stopped by a user who did not ask for it");
      }
      return;
    case Reason::kJoinTimeout:
      if (connected >= max_nodes) {
        Fail("join timeout, but enough nodes were there");
      }
      return;
    case Reason::kPlanImpossible:  // a first round has the plan it asked for
      if (done.exit_code != 2 || job.round == 0) {
        Fail("the plan was possible");
      }
      return;
    default:
      Fail(absl::StrCat("a result that cannot be: ", ToString(done.reason)));
  }
}

// ---- a new round ------------------------------------------------------------

void Checker::CheckNewRound(const Step& step) {
  std::map<std::string, RoundStart> starts;
  for (const Effect& effect : step.effects) {
    const auto* const reply = std::get_if<Reply>(&effect);
    const auto* const start = reply == nullptr ? nullptr : std::get_if<RoundStart>(&reply->message);
    if (start == nullptr) {
      continue;
    }
    const std::string& to = reply->agent.incarnation;
    if (step.job.result.has_value()) {
      Fail("a round starts after the job ended");
    }
    if (start->round == step.job.round) {  // repeated to one that came back
      const auto told = step.job.members.find(to);
      if (told == step.job.members.end() || told->second.first_rank != start->first_rank ||
          told->second.master_port != start->master_port || step.job.stop.has_value()) {
        Fail(absl::StrCat(to, " is told of its round again, but otherwise"));
      }
      continue;
    }
    starts[to] = *start;
  }
  if (starts.empty()) {
    return;
  }
  const std::int64_t round = starts.begin()->second.round;
  if (round <= step.job.round) {
    Fail("a round's number came again");
  }
  if (step.job.stored_round < round) {
    Fail("a round started before its number was stored");
  }
  CheckMembersGone(step);
  CheckRanks(step, starts);
  CheckSticky(step, starts);
  CheckAgreement(step, starts);
  BeginRound(step, starts);
}

// At most one live round: every member of the last has stopped, is gone, or was
// given all the time it may have.
void Checker::CheckMembersGone(const Step& step) {
  for (const auto& [incarnation, start] : step.job.members) {
    const Agent& agent = step.job.agents.at(incarnation);
    const bool stop_expired =
        step.job.stop.has_value() &&
        step.now >= step.job.stop_at + agent.hello.stop_grace + options_.stop_margin;
    const bool expired =
        step.now >= agent.last_heard + options_.heartbeat_timeout ||
        (!agent.connected && step.now >= agent.disconnected_at + options_.reconnect_grace);
    if (!step.job.stopped.contains(incarnation) && !agent.gone && !expired && !stop_expired) {
      Fail(absl::StrCat("a new round starts while ", incarnation, " still runs the last"));
    }
  }
}

void Checker::CheckRanks(const Step& step, const std::map<std::string, RoundStart>& starts) {
  std::map<std::int32_t, const RoundStart*> by_node;
  for (const auto& [incarnation, start] : starts) {
    const Agent& agent = step.job.agents.at(incarnation);
    if (!by_node.emplace(start.node_rank, &start).second) {
      Fail("two nodes have one node rank");
    }
    if (agent.gone || start.nproc != agent.hello.nproc) {
      Fail(absl::StrCat(incarnation, " is gone, or has another number of workers"));
    }
    if (agent.hello.node_rank.has_value() && *agent.hello.node_rank != start.node_rank) {
      Fail(absl::StrCat(incarnation, " did not get the --node-rank it asked for"));
    }
  }
  std::int32_t next_rank = 0;
  std::int32_t next_node = 0;
  for (const auto& [node_rank, start] : by_node) {
    if (node_rank != next_node++ || start->first_rank != next_rank) {
      Fail("ranks are not contiguous");
    }
    next_rank += start->nproc;
  }
  for (const auto& [incarnation, start] : starts) {
    if (start.world_size != next_rank || start.num_nodes != next_node) {
      Fail(absl::StrCat(incarnation, " got another world than there is"));
    }
  }
}

void Checker::CheckSticky(const Step& step, const std::map<std::string, RoundStart>& starts) {
  std::set<std::int32_t> pinned;
  for (const auto& [incarnation, start] : starts) {
    if (const auto rank = step.job.agents.at(incarnation).hello.node_rank) {
      pinned.insert(*rank);
    }
  }
  for (const auto& [incarnation, start] : starts) {
    const Agent& agent = step.job.agents.at(incarnation);
    if (agent.held.has_value() && !agent.hello.node_rank.has_value() &&
        !pinned.contains(*agent.held) && start.node_rank != *agent.held) {
      Fail(absl::StrCat(incarnation, " lost its node rank ", *agent.held, " to get ",
                        start.node_rank));
    }
  }
}

void Checker::CheckAgreement(const Step& step, const std::map<std::string, RoundStart>& starts) {
  const RoundStart& first = starts.begin()->second;
  const bool charged = step.job.stop.has_value() && step.job.stop->reason == Reason::kWorkerFailed;
  if (first.restart_count != step.job.restart_count + (charged ? 1 : 0) ||
      first.restart_count > first.max_restarts) {
    Fail("the restart count is not that of the failures so far");
  }
  for (const auto& [incarnation, start] : starts) {
    if (start.round != first.round || start.restart_count != first.restart_count ||
        start.master_addr != first.master_addr || start.master_port != first.master_port ||
        start.plan != first.plan || !(start.plan_request == first.plan_request)) {
      Fail("members of one round were told different things");
    }
    const Agent& agent = step.job.agents.at(incarnation);
    if (start.node_rank == 0 &&
        (start.master_addr != agent.hello.address || start.master_port != agent.port)) {
      Fail("the master is not node rank 0 at the port it told last");
    }
  }
}

void Checker::BeginRound(const Step& step, const std::map<std::string, RoundStart>& starts) {
  Job& job = step.job;
  job.round = starts.begin()->second.round;
  job.restart_count = starts.begin()->second.restart_count;
  job.members = starts;
  job.stopped.clear();
  job.succeeded.clear();
  job.barriers.clear();
  job.keys.clear();
  job.plan.reset();
  job.first_failure.reset();
  job.stop.reset();
  for (auto& [incarnation, agent] : job.agents) {
    const auto start = starts.find(incarnation);
    agent.held = start == starts.end() ? std::nullopt : std::optional(start->second.node_rank);
  }
}

}  // namespace ddl::core::sim
