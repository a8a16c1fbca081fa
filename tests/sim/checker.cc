// The invariants' account: which job an event is for, and what it means.
#include "tests/sim/checker.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/text.h"

namespace ddl::sim {
namespace {

using core::AgentConnected;
using core::AgentDisconnected;
using core::AgentHeard;
using core::AgentLeft;
using core::BarrierReached;
using core::KeyWritten;
using core::RoundStopped;
using core::StopRequested;
using core::StoreDone;
using core::TimerFired;
using core::WorkerFailed;
using core::WorkersSucceeded;

const std::string& JobIdOf(const core::Event& event) {
  return std::visit(
      [](const auto& e) -> const std::string& {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, TimerFired>) {
          return e.id.job_id;
        } else if constexpr (std::is_same_v<E, StoreDone>) {
          return e.job_id;
        } else {
          return e.agent.job_id;
        }
      },
      event);
}

// Of a word, an agent's end, or an agent's timer.
std::optional<NodeId> SubjectOf(const core::Event& event) {
  return std::visit(
      [](const auto& e) -> std::optional<NodeId> {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, TimerFired>) {
          return e.id.subject.empty() ? std::nullopt
                                      : std::optional(NodeOfIncarnation(e.id.subject));
        } else if constexpr (std::is_same_v<E, StoreDone>) {
          return std::nullopt;
        } else {
          return NodeOfRef(e.agent);
        }
      },
      event);
}

// Nothing: it names no round.
std::optional<std::int64_t> RoundOf(const core::Event& event) {
  return std::visit(
      [](const auto& e) -> std::optional<std::int64_t> {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, WorkerFailed> || std::is_same_v<E, WorkersSucceeded> ||
                      std::is_same_v<E, RoundStopped> || std::is_same_v<E, KeyWritten> ||
                      std::is_same_v<E, core::KeyWanted> || std::is_same_v<E, BarrierReached> ||
                      std::is_same_v<E, core::PlanProposed>) {
          return e.round;
        } else {
          return std::nullopt;
        }
      },
      event);
}

bool IsStaleReason(core::Reason reason) {
  return reason == core::Reason::kStaleRound || reason == core::Reason::kStaleIncarnation;
}

}  // namespace

void Checker::Fail(const std::string& what) {
  if (violation_.empty()) {
    violation_ = what;
  }
}

Checker::RoundOrigin Checker::OriginOf(NodeId node) const {
  const Agent& agent = agents_.at(node);
  if (agent.job < 0) {
    return {};
  }
  const Job& job = jobs_[static_cast<std::size_t>(agent.job)];
  return {agent.coordinator_life, static_cast<std::uint32_t>(agent.job), job.formed_unwarned};
}

Checker::Agent& Checker::At(NodeId node) {
  if (agents_.size() <= node) {
    agents_.resize(node + 1);
  }
  return agents_[node];
}

Checker::Agent* Checker::Find(std::uint32_t life, NodeId node) {
  Agent& agent = At(node);
  return agent.coordinator_life == life && agent.job >= 0 ? &agent : nullptr;
}

void Checker::AfterStep(std::uint32_t life, Instant now, const core::Event& event,
                        const core::Effects& effects, bool known) {
  if (life != coordinator_life_) {
    coordinator_life_ = life;
    current_.clear();
    persisted_.clear();
  }
  const std::optional<NodeId> subject = SubjectOf(event);
  Job& job = JobOf(life, now, event, subject.value_or(kNobody));
  const Step step{life,
                  now,
                  event,
                  effects,
                  std::holds_alternative<TimerFired>(event) ? kNobody : subject.value_or(kNobody),
                  job};
  if (IsStale(step)) {
    CheckStale(step);
  }
  NoteEvent(step);
  NoteGathering(job, now);
  CheckNewRound(step);
  for (const core::Effect& effect : effects) {
    if (const auto* const reply = std::get_if<core::Reply>(&effect)) {
      CheckReply(step, *reply);
    } else if (const auto* const persist = std::get_if<core::Persist>(&effect)) {
      CheckFormed(step, job, *persist);
    } else if (const auto* const arm = std::get_if<core::ArmTimer>(&effect)) {
      if (arm->deadline < now) {
        Fail("a timer is armed for the past");
      }
    }
  }
  NoteGathering(job, now);
  if (!known) {
    current_.erase(JobIdOf(event));
  }
}

// An agent that is known is in its own job, also when that has its result and
// its id serves another one.
Checker::Job& Checker::JobOf(std::uint32_t life, Instant now, const core::Event& event,
                             NodeId sender) {
  if (const Agent* const agent = sender == kNobody ? nullptr : Find(life, sender)) {
    return jobs_[static_cast<std::size_t>(agent->job)];
  }
  const auto current = current_.find(JobIdOf(event));
  const auto* const hello = std::get_if<AgentConnected>(&event);
  if (current != current_.end()) {
    Job& job = jobs_[static_cast<std::size_t>(current->second)];
    if (hello == nullptr || !job.result.has_value()) {
      return job;
    }
  }
  Job job;
  job.coordinator_life = life;
  job.gathers_since = now;
  if (hello != nullptr) {
    job.terms = *hello;
    job.wanted = hello->max_nodes;
    current_[JobIdOf(event)] = static_cast<std::int32_t>(jobs_.size());
  } else {
    job.ended = true;  // of nobody
  }
  jobs_.push_back(std::move(job));
  return jobs_.back();
}

bool Checker::IsMember(const Job& job, NodeId node) const {
  return std::any_of(job.members.begin(), job.members.end(),
                     [node](const auto& member) { return member.first == node; });
}

bool Checker::IsReady(const Agent& agent) const {
  return agent.admitted && !agent.gone && agent.connected && !agent.leaving &&
         agent.surviving_round == 0;
}

std::int32_t Checker::CountReady(const Job& job) {
  return static_cast<std::int32_t>(std::count_if(
      job.agents.begin(), job.agents.end(), [this](NodeId node) { return IsReady(At(node)); }));
}

// ---- events -----------------------------------------------------------------

bool Checker::IsStale(const Step& step) {
  const std::optional<std::int64_t> round = RoundOf(step.event);
  if (!round.has_value()) {
    return false;
  }
  const Agent* const agent = Find(step.life, step.sender);
  if (agent == nullptr || agent->gone) {
    return true;
  }
  if (agent->surviving_round == *round && std::holds_alternative<RoundStopped>(step.event)) {
    return false;
  }
  return *round != step.job.round || !IsMember(step.job, step.sender) ||
         step.job.result.has_value();
}

void Checker::CheckStale(const Step& step) {
  bool said = false;
  for (const core::Effect& effect : step.effects) {
    const auto* const explain = std::get_if<core::Explain>(&effect);
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
  if (const auto* const hello = std::get_if<AgentConnected>(&step.event)) {
    NoteHello(step, *hello);
    return;
  }
  if (const auto* const stored = std::get_if<StoreDone>(&step.event)) {
    if (const auto it = persisted_.find(stored->sequence); it != persisted_.end()) {
      Job& job = jobs_[static_cast<std::size_t>(it->second.first)];
      job.stored_round = std::max(job.stored_round, it->second.second);
    }
    return;
  }
  const auto* const fired = std::get_if<TimerFired>(&step.event);
  const NodeId subject = fired == nullptr || fired->id.subject.empty()
                             ? step.sender
                             : NodeOfIncarnation(fired->id.subject);
  Agent* const agent = subject == kNobody ? nullptr : Find(step.life, subject);
  if (agent == nullptr) {
    return;
  }
  if (fired != nullptr) {
    agent->gone =
        agent->gone || (fired->id.kind == core::TimerKind::kReconnect && !agent->connected &&
                        step.now >= agent->disconnected_at + options_.reconnect_grace);
  } else if (std::holds_alternative<AgentDisconnected>(step.event)) {
    if (agent->connected) {
      agent->connected = false;
      agent->disconnected_at = step.now;
    }
  } else if (std::holds_alternative<AgentLeft>(step.event)) {
    agent->gone = true;
    agent->leaving = true;
  } else {
    NoteWord(step, *agent);
  }
}

void Checker::NoteHello(const Step& step, const AgentConnected& hello) {
  Agent& agent = At(step.sender);
  if (agent.coordinator_life != step.life || agent.job < 0) {
    agent = Agent{};
    agent.coordinator_life = step.life;
    agent.job = static_cast<std::int32_t>(&step.job - jobs_.data());
    agent.hello = hello;
    agent.joined_at = step.now;
    agent.surviving_round = hello.last_round;
    step.job.agents.push_back(step.sender);
  }
  agent.connected = true;
  agent.last_heard = step.now;
  if (hello.master_port != 0) {
    agent.port = hello.master_port;
  }
}

void Checker::NoteWord(const Step& step, Agent& agent) {
  Job& job = step.job;
  agent.last_heard = step.now;
  if (const auto* const heard = std::get_if<AgentHeard>(&step.event)) {
    agent.port = heard->master_port == 0 ? agent.port : heard->master_port;
  } else if (const auto* const stop = std::get_if<StopRequested>(&step.event)) {
    NoteStop(step, *stop, agent);
  }
  if (IsStale(step)) {
    return;
  }
  if (const auto* const failed = std::get_if<WorkerFailed>(&step.event)) {
    NoteFailure(step, *failed);
  } else if (std::holds_alternative<WorkersSucceeded>(step.event)) {
    job.succeeded.insert(step.sender);
  } else if (const auto* const stopped = std::get_if<RoundStopped>(&step.event)) {
    if (agent.surviving_round == stopped->round) {
      agent.surviving_round = 0;
    } else {
      job.stopped.insert(step.sender);
    }
  } else if (const auto* const barrier = std::get_if<BarrierReached>(&step.event)) {
    job.barriers[barrier->name].insert(step.sender);
  } else if (const auto* const key = std::get_if<KeyWritten>(&step.event)) {
    job.keys.emplace(key->key, key->value);
  }
}

// A node that was taken out leaves; else the job is to end by this signal.
// The root cause: who blames nobody before who does, then by when it happened.
void Checker::NoteFailure(const Step& step, const WorkerFailed& failed) {
  Job& job = step.job;
  const Instant at = step.now - failed.age;
  if (!job.cause.has_value() ? job.stop.has_value()
                             : std::pair(failed.failure.blames_peer, at) >=
                                   std::pair(job.cause->blames_peer, job.caused_at)) {
    return;
  }
  job.cause = failed.failure;
  job.caused_at = at;
  NoteMemoryFailure(job);
}

void Checker::NoteStop(const Step& step, const StopRequested& stop, Agent& agent) {
  const bool taken_out =
      std::any_of(step.effects.begin(), step.effects.end(), [](const core::Effect& effect) {
        const auto* const explain = std::get_if<core::Explain>(&effect);
        return explain != nullptr && explain->reason == core::Reason::kNodeLeft;
      });
  if (!taken_out) {
    step.job.signals.insert(stop.signal);
    return;
  }
  agent.leaving = true;
  const bool elastic = step.job.terms.min_nodes < step.job.terms.max_nodes;
  if (!agent.spare && !(stop.node_only && elastic)) {
    Fail("a stop of the job took only one node out");
  }
}

// When the last member has stopped or is gone, the job gathers; from when enough
// nodes are there, the last call runs.
void Checker::NoteGathering(Job& job, Instant now) {
  if (job.live && !job.result.has_value() &&
      std::all_of(job.members.begin(), job.members.end(), [this, &job](const auto& member) {
        return job.stopped.contains(member.first) || At(member.first).gone;
      })) {
    job.live = false;
    job.gathers_since = now;
    job.enough_since.reset();
    job.formed_before = false;
    job.wanted = static_cast<std::int32_t>(
        std::count_if(job.members.begin(), job.members.end(),
                      [this](const auto& member) { return !At(member.first).leaving; }));
    for (const NodeId node : job.agents) {
      At(node).spare = false;
    }
  }
  if (job.live || job.result.has_value()) {
    return;
  }
  if (CountReady(job) < job.terms.min_nodes) {
    job.enough_since.reset();
  } else if (!job.enough_since.has_value()) {
    job.enough_since = now;
  }
}

}  // namespace ddl::sim
