// Job, what an agent that joined is for: a member of the next round, a late node
// for which a running round is ended, a spare, or a survivor: an agent of a round
// from before this coordinator's start.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/core/job.h"
#include "agent/core/wording.h"

namespace ddl::core {

void Job::Admit(Turn& turn, Agent& agent) {
  switch (state_) {
    case State::kGathering:
      GatherOn(turn, &agent);
      return;
    case State::kForming:
      Park(agent);
      if (CanGrow()) {  // nobody has started yet: form it anew
        AbandonForming(turn, Reason::kNodeJoined);
      } else {
        TellParked(turn, agent);
      }
      return;
    case State::kRunning:
      Park(agent);
      if (GrowOn(turn)) {
        Tell(turn, RefOf(agent), MakeWaiting(turn.now));
      } else {
        TellParked(turn, agent);
      }
      return;
    case State::kStopping:
      Tell(turn, RefOf(agent), MakeWaiting(turn.now));
      return;
    case State::kEnded:
      return;
  }
}

// ---- late nodes ---------------------------------------------------------------

bool Job::CanGrow() const {
  // Once some nodes have finished, the others are about to.
  if (round_->num_succeeded > 0) {
    return false;
  }
  // Worth it only if a larger world has a plan: that of one late node, or of more.
  auto num_nodes = static_cast<std::int32_t>(round_->members.size());
  std::int32_t world_size = round_->world_size;
  return std::any_of(spares_.begin(), spares_.end(), [&](const auto& spare) {
    const Agent& late = agents_.at(spare.second);
    if (!late.ready()) {
      return false;
    }
    ++num_nodes;
    world_size += late.hello.nproc;
    return num_nodes <= first_.max_nodes && plan_.ForWorld(world_size).ok();
  });
}

bool Job::GrowOn(Turn& turn) {
  if (!CanGrow()) {
    last_call_.reset();
    return false;
  }
  if (!last_call_.has_value()) {
    last_call_ = turn.now + first_.last_call_timeout;
  }
  std::vector<std::string> late;
  for (const auto& [arrival, incarnation] : spares_) {
    if (const Agent& agent = agents_.at(incarnation); agent.ready()) {
      late.push_back(agent.hello.host);
    }
  }
  const bool complete =
      round_->members.size() + late.size() >= static_cast<std::size_t>(first_.max_nodes);
  if (!complete && turn.now < *last_call_) {
    Arm(turn, TimerKind::kLastCall, "", *last_call_);
    return false;
  }
  BeginStop(turn, Reason::kNodeJoined,
            absl::StrCat(late.size() == 1 ? "host " : "hosts ", NameSome(late, late.size()),
                         " joined: round ", round_->number, " ends to take ",
                         late.size() == 1 ? "it" : "them", " in"),
            std::nullopt, std::nullopt);
  return true;
}

void Job::OnLateCall(Turn& turn) {
  const bool promised = last_call_.has_value();
  if (!GrowOn(turn) && promised && !last_call_.has_value()) {
    std::int32_t place = 0;
    for (const auto& [arrival, incarnation] : spares_) {
      TellPlace(turn, agents_.at(incarnation), ++place);
    }
  }
}

// ---- spares -----------------------------------------------------------------

void Job::Park(const Agent& agent) {
  spares_[agent.arrival] = RefOf(agent).incarnation;
}

void Job::TellParked(Turn& turn, const Agent& agent) const {
  const auto place = static_cast<std::int32_t>(spares_.size());
  Say(turn, Reason::kParked, absl::StrCat("host ", agent.hello.host, " is spare ", place));
  TellPlace(turn, agent, place);
}

void Job::ParkAllOthers(Turn& turn) {
  if (num_ready_ == static_cast<std::int32_t>(round_->members.size())) {
    return;
  }
  std::map<std::int64_t, Agent*> others;
  for (auto& [incarnation, agent] : agents_) {
    if (agent.ready() && round_->FindMember(incarnation) == nullptr) {
      others[agent.arrival] = &agent;
    }
  }
  for (const auto& [arrival, agent] : others) {
    Park(*agent);
    TellParked(turn, *agent);
  }
}

void Job::Unpark(Turn& turn, std::int64_t arrival) {
  if (spares_.erase(arrival) == 0) {
    return;
  }
  std::int32_t place = 0;
  for (const auto& [other_arrival, incarnation] : spares_) {
    ++place;
    if (other_arrival > arrival) {
      TellPlace(turn, agents_.at(incarnation), place);
    }
  }
}

void Job::TellPlace(Turn& turn, const Agent& agent, std::int32_t place) const {
  const bool is_full = static_cast<std::int32_t>(round_->members.size()) == first_.max_nodes;
  const std::string why =
      state_ == State::kRunning && last_call_.has_value()
          ? absl::StrCat("this node takes part in the next, in ", InSeconds(*last_call_ - turn.now),
                         " or when ", first_.max_nodes, " nodes are there")
      : is_full                   ? "this node takes over when one is lost"
      : round_->num_succeeded > 0 ? "some have finished already"
                                  : "with more there is no plan";
  Tell(turn, RefOf(agent),
       Spare{place, absl::StrCat("spare ", place, " of job '", first_.agent.job_id, "': round ",
                                 round_->number, " has its ",
                                 Counted(static_cast<std::int64_t>(round_->members.size()), "node"),
                                 " (", round_->NameHosts(), "); ", why)});
}

void Job::RepeatPlace(Turn& turn, Agent& agent) {
  std::int32_t place = 0;
  for (const auto& [arrival, incarnation] : spares_) {
    ++place;
    if (arrival == agent.arrival) {
      if (state_ != State::kRunning || !GrowOn(turn)) {
        TellPlace(turn, agent, place);
      }
      return;
    }
  }
  if (agent.leaving) {
    return;
  }
  Admit(turn, agent);
}

// ---- survivors --------------------------------------------------------------

void Job::BeginSurvival(Turn& turn, Agent& agent) {
  Change(agent, [](Agent& survivor) { survivor.surviving_round = survivor.hello.last_round; });
  last_round_ = std::max(last_round_, agent.hello.last_round);
  const bool forming = state_ == State::kForming;
  if (forming || state_ == State::kGathering) {
    restart_count_ =
        std::max(restart_count_, std::min(agent.hello.restart_count, first_.max_restarts));
    plan_.Recover(agent.hello.last_plan, agent.hello.last_round);
  }
  if (!recovering_) {
    recovering_ = true;
    not_before_ =
        std::max(not_before_, turn.now + options_.heartbeat_timeout + options_.reconnect_grace);
  }
  if (forming) {  // it must not start beside what this one still runs
    AbandonForming(turn, Reason::kRecovered);
  }
  agent.stop_deadline = turn.now + agent.hello.stop_grace + options_.stop_margin;
  const RoundStop stop = MakeSurvivorStop(agent);
  Say(turn, Reason::kRecovered, stop.text);
  Tell(turn, RefOf(agent), stop);
  Arm(turn, TimerKind::kStop, RefOf(agent).incarnation, agent.stop_deadline);
}

RoundStop Job::MakeSurvivorStop(const Agent& agent) const {
  RoundStop stop;
  stop.round = agent.surviving_round;
  stop.reason = Reason::kRecovered;
  stop.text = absl::StrCat("host ", agent.hello.host, " comes from round ", agent.surviving_round,
                           ", of which this coordinator knows nothing: it was restarted; the round "
                           "stops and the nodes gather again");
  stop.will_restart = true;
  return stop;
}

void Job::EndSurvival(Turn& turn, Agent& agent) {
  Say(turn, Reason::kRecovered,
      absl::StrCat("host ", agent.hello.host, " has stopped round ", agent.surviving_round));
  Change(agent, [](Agent& survivor) { survivor.surviving_round = 0; });
  if (state_ == State::kGathering || state_ == State::kForming) {
    ArmJoin(turn, agent);
  }
  if (agent.ready()) {
    Admit(turn, agent);
  }
}

void Job::OnSurvivorTimer(Turn& turn, const std::string& incarnation) {
  const auto it = agents_.find(incarnation);
  if (it == agents_.end() || it->second.surviving_round == 0) {
    return;
  }
  if (turn.now < it->second.stop_deadline) {
    Arm(turn, TimerKind::kStop, incarnation, it->second.stop_deadline);
    return;
  }
  GiveUpUnstopped(turn, it);
}

}  // namespace ddl::core
