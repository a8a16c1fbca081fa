// Job, how an agent is lost: silence, a broken stream that nobody mends, a
// goodbye, or no answer to a stop.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/core/job.h"
#include "agent/core/wording.h"

namespace ddl::core {

void Job::On(Turn& turn, const AgentDisconnected& disconnected) {
  const auto it = agents_.find(disconnected.agent.incarnation);
  // The stream of one that was refused, or given up before, ends too.
  if (it == agents_.end() || !it->second.connected) {
    return;
  }
  Agent& agent = it->second;
  Change(agent, [](Agent& lost) { lost.connected = false; });
  agent.lease_end = agent.last_heard + options_.heartbeat_timeout;
  agent.last_heard = turn.now;
  agent.reconnect_deadline = turn.now + options_.reconnect_grace;
  Say(turn, Reason::kNodeLost,
      absl::StrCat("the stream of ", Name(agent), " broke; it has ",
                   InSeconds(options_.reconnect_grace), " to come back"));
  Arm(turn, TimerKind::kReconnect, it->first, agent.reconnect_deadline);
  if (state_ == State::kGathering) {
    GatherOn(turn, nullptr);
  }
}

void Job::On(Turn& turn, const AgentLeft& left) {
  const auto it = agents_.find(left.agent.incarnation);
  if (it == agents_.end()) {
    return;
  }
  std::string text = absl::StrCat(Name(it->second), " left");
  if (!left.why.empty()) {
    absl::StrAppend(&text, ": ", left.why);
  }
  Remove(turn, it, Departure{Reason::kNodeLeft, std::move(text)});
}

void Job::On(Turn& turn, const TimerFired& fired) {
  switch (fired.id.kind) {
    case TimerKind::kHeartbeat:
      OnHeartbeatTimer(turn, fired.id.subject);
      return;
    case TimerKind::kReconnect:
      OnReconnectTimer(turn, fired.id.subject);
      return;
    case TimerKind::kJoin:
      OnJoinTimer(turn);
      return;
    case TimerKind::kStop:
      if (fired.id.subject.empty()) {
        OnStopTimer(turn);
      } else {
        OnSurvivorTimer(turn, fired.id.subject);
      }
      return;
    case TimerKind::kLastCall:
      if (state_ == State::kGathering) {
        form_timer_.reset();
        GatherOn(turn, nullptr);
      } else if (state_ == State::kRunning) {
        OnLateCall(turn);
      }
      return;
    case TimerKind::kForget:
      if (state_ == State::kEnded && turn.now >= forget_deadline_) {
        Drop(turn);
      }
      return;
  }
}

void Job::OnHeartbeatTimer(Turn& turn, const std::string& incarnation) {
  const auto it = agents_.find(incarnation);
  // Without a stream the shorter reconnect grace decides.
  if (it == agents_.end() || !it->second.connected) {
    return;
  }
  const Instant deadline = it->second.last_heard + options_.heartbeat_timeout;
  if (turn.now < deadline) {
    Arm(turn, TimerKind::kHeartbeat, incarnation, deadline);
    return;
  }
  std::string text = absl::StrCat(Name(it->second), " was lost: silent for ",
                                  InSeconds(turn.now - it->second.last_heard));
  Tell(turn, RefOf(it->second), Rejected{Reason::kStaleIncarnation, text});
  Remove(turn, it, Departure{Reason::kNodeLost, std::move(text)});
}

void Job::OnReconnectTimer(Turn& turn, const std::string& incarnation) {
  const auto it = agents_.find(incarnation);
  if (it == agents_.end() || it->second.connected || turn.now < it->second.reconnect_deadline) {
    return;
  }
  std::string text = absl::StrCat(Name(it->second), " was lost: its stream broke and it did not ",
                                  "come back within ", InSeconds(options_.reconnect_grace));
  HeedLease(it->second);
  Remove(turn, it, Departure{Reason::kNodeLost, std::move(text)});
}

void Job::GiveUpUnstopped(Turn& turn, AgentMap::iterator it) {
  const std::string text =
      absl::StrCat(Name(it->second), " did not stop its workers in time and is given up");
  HeedLease(it->second);
  Tell(turn, RefOf(it->second), Rejected{Reason::kStopTimeout, text});
  Remove(turn, it, Departure{Reason::kStopTimeout, text});
}

void Job::HeedLease(const Agent& agent) {
  const bool proved = !agent.connected && !options_.broken_stream_proves_nothing;
  if (!proved && MayRunWorkers(agent)) {
    not_before_ =
        std::max(not_before_,
                 agent.connected ? agent.last_heard + options_.heartbeat_timeout : agent.lease_end);
  }
}

bool Job::MayRunWorkers(const Agent& agent) {
  if (agent.surviving_round != 0) {
    return true;
  }
  const bool live = state_ == State::kRunning || state_ == State::kStopping;
  const Member* const member = live ? round_->FindMember(RefOf(agent).incarnation) : nullptr;
  return member != nullptr && !member->succeeded && !member->stopped;
}

void Job::Remove(Turn& turn, AgentMap::iterator it, const Departure& departure) {
  const Agent agent = std::move(it->second);
  agents_.erase(it);
  turn.gone.Add(RefOf(agent));
  Count(agent, -1);
  Unpark(turn, agent.arrival);
  if (agent.hello.node_rank.has_value()) {
    const auto pin = pins_.find(*agent.hello.node_rank);
    if (pin != pins_.end() && pin->second == RefOf(agent).incarnation) {
      pins_.erase(pin);
    }
  }
  Say(turn, departure.reason, departure.text);
  if (agents_.empty()) {
    ForgetAbandoned(turn);
  } else {
    AfterRemoval(turn, agent, departure);
  }
}

void Job::AfterRemoval(Turn& turn, const Agent& agent, const Departure& departure) {
  Member* const member =
      round_.has_value() ? round_->FindMember(RefOf(agent).incarnation) : nullptr;
  switch (state_) {
    case State::kGathering:
      last_departure_ = departure.text;
      GatherOn(turn, nullptr);
      return;
    case State::kForming:
      if (member != nullptr) {
        last_departure_ = departure.text;
        AbandonForming(turn, departure.reason);
      }
      return;
    case State::kRunning:
      if (member == nullptr) {
        return;
      }
      member->left = departure.reason == Reason::kNodeLeft;
      if (member->succeeded) {
        Say(turn, departure.reason,
            absl::StrCat("host ", member->host, " is not missed: its workers had succeeded"));
        return;
      }
      last_departure_ = departure.text;
      BeginStop(turn, departure.reason, departure.text, std::nullopt, std::nullopt);
      return;
    case State::kStopping:
      if (member != nullptr) {
        member->left = departure.reason == Reason::kNodeLeft;
        last_departure_ = departure.text;
        if (departure.reason == Reason::kNodeLost) {
          ForgiveFailure(turn, agent, departure.text);
        }
        MarkStopped(turn, *member);
      }
      return;
    case State::kEnded:
      return;
  }
}

// When a node dies its peers' connections break, and their workers may fail
// before the node has been given up. That is a change of membership.
void Job::ForgiveFailure(Turn& turn, const Agent& lost, const std::string& loss) {
  Stopping& stopping = *round_->stopping;
  const std::optional<WorkerFailure>& cause = stopping.message.root_cause;
  const bool by_failure = !stopping.result.has_value() || stopping.result->root_cause.has_value();
  if (stopping.message.reason != Reason::kWorkerFailed || !by_failure || !cause.has_value() ||
      round_->failure_from == RefOf(lost).incarnation) {
    return;
  }
  const bool lost_before =
      !lost.connected && lost.reconnect_deadline - options_.reconnect_grace <= stopping.began;
  if (!cause->blames_peer && !lost_before) {
    return;
  }
  Say(turn, Reason::kNodeLost,
      absl::StrCat("the failure of rank ", cause->rank, " came of it; no restart is charged"));
  stopping.message.reason = Reason::kNodeLost;
  stopping.message.text = loss;
  stopping.message.root_cause.reset();
  stopping.result = stopping.user_stop;
  stopping.message.will_restart = !stopping.result.has_value();
}

void Job::Drop(Turn& turn) {
  for (const auto& [incarnation, agent] : agents_) {
    turn.gone.Add(RefOf(agent));
  }
  Say(turn, Reason::kJobEnded,
      absl::StrCat("the ended job is forgotten; ", agents_.size(), " nodes never left"));
  forgotten_ = true;
}

// Nobody is left to tell a result to. The id is free for a new start.
void Job::ForgetAbandoned(Turn& turn) {
  if (state_ != State::kEnded) {
    static_cast<void>(PersistNow(turn, /*ended=*/true));
  }
  Say(turn, Reason::kJobEnded, "all nodes are gone; the job is forgotten");
  forgotten_ = true;
}

}  // namespace ddl::core
