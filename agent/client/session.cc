// The agent's side of its session: connect, heartbeat, reconnect, give up.
#include "agent/client/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddl {
namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(200);
// When a first connection takes longer than this, the user is told why.
constexpr Duration kNoticeAfter = std::chrono::seconds(5);
constexpr Duration kNoticeInterval = std::chrono::seconds(30);
// However long the coordinator's interval is: fewer heartbeats in a timeout
// would leave no time to notice that they are not answered.
constexpr int kMinHeartbeatsPerTimeout = 4;
constexpr int kSilentHeartbeats = 2;
// Of the grace to reconnect an agent uses so many quarters: the coordinator may
// have seen the stream break a little earlier, or its clock run faster, and gives
// the place away when the whole of it is over.
constexpr int kQuartersOfGrace = 3;

std::int64_t Seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

// A try that is no use to repeat.
bool IsFinal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

Session::Session(Options options, Instant now)
    : options_(std::move(options)),
      hello_(options_.hello),
      started_(now),
      give_up_at_(now + options_.connect_timeout),
      notice_at_(now + kNoticeAfter) {}

SessionActions Session::Start(Instant now) {
  SessionActions actions;
  Open(now, actions);
  return actions;
}

void Session::Open(Instant now, SessionActions& actions) {
  ++attempt_;
  has_stream_ = true;
  hello_sent_at_ = now;
  unacknowledged_.clear();
  actions.emplace_back(OpenStream{attempt_, hello_});
}

// ---- from the node ----------------------------------------------------------

SessionActions Session::Send(core::Event event) {
  if (std::holds_alternative<core::RoundStopped>(event) ||
      std::holds_alternative<core::WorkersSucceeded>(event)) {
    in_round_ = false;
  }
  SessionActions actions;
  if (state_ == State::kConnected) {
    actions.emplace_back(SendEvent{std::move(event)});
  }
  return actions;
}

SessionActions Session::SetMasterPort(Instant now, std::uint16_t port) {
  hello_.master_port = port;
  SessionActions actions;
  if (state_ == State::kConnected) {
    SendHeartbeat(now, port, actions);
  }
  return actions;
}

SessionActions Session::Leave(std::string why) {
  SessionActions actions;
  if (!has_stream_) {
    state_ = State::kClosed;
  } else if (state_ == State::kConnected) {
    actions.emplace_back(SendEvent{core::AgentLeft{hello_.agent, std::move(why)}});
    actions.emplace_back(HalfCloseStream{});
    state_ = State::kLeaving;
  } else if (state_ == State::kConnecting) {
    actions.emplace_back(CancelStream{});
    state_ = State::kLeaving;
  }
  return actions;
}

void Session::SendHeartbeat(Instant now, std::uint32_t master_port, SessionActions& actions) {
  unacknowledged_.push_back(now);
  actions.emplace_back(SendEvent{core::AgentHeard{hello_.agent, master_port}});
}

// ---- from the stream --------------------------------------------------------

SessionActions Session::OnMessage(Instant now, int attempt, absl::StatusOr<core::Message> message) {
  SessionActions actions;
  if (attempt != attempt_ || !has_stream_ || state_ == State::kClosed) {
    return actions;
  }
  last_heard_ = now;
  if (absl::IsUnimplemented(message.status())) {
    return actions;  // a newer coordinator's message: nothing for us
  }
  if (!message.ok()) {
    Lose(now, message.status(), actions);
  } else if (Receive(now, *message, actions)) {
    actions.emplace_back(*std::move(message));
  }
  return actions;
}

bool Session::Receive(Instant now, const core::Message& message, SessionActions& actions) {
  if (const auto* const welcome = std::get_if<core::Welcome>(&message)) {
    if (state_ == State::kConnecting) {
      Welcomed(*welcome);
    }
  } else if (std::holds_alternative<core::HeartbeatAck>(message)) {
    if (!unacknowledged_.empty()) {
      Acknowledged(unacknowledged_.front());
      unacknowledged_.pop_front();
    }
    return false;
  } else if (const auto* const start = std::get_if<core::RoundStart>(&message)) {
    if (state_ == State::kConnected && now >= lease_until_ && !options_.is_irreplaceable) {
      // It was long on its way: the round may be over by now. On a new stream
      // the coordinator says it again, or that this node was given up.
      Break(now, "it is too slow", actions);
      return false;
    }
    hello_.last_round = start->round;
    hello_.restart_count = start->restart_count;
    Remember(start->plan, start->plan_request);
    in_round_ = true;
  } else if (const auto* const stop = std::get_if<core::RoundStop>(&message)) {
    hello_.last_round = std::max(hello_.last_round, stop->round);
  } else if (const auto* const changed = std::get_if<core::PlanChanged>(&message)) {
    if (changed->revision > 0 && changed->plan.has_value()) {
      Remember(changed->plan, changed->plan_request);
    }
  } else if (const auto* const reply = std::get_if<core::PlanReply>(&message)) {
    if (reply->round == hello_.last_round && reply->plan.has_value()) {
      Remember(reply->plan, reply->plan_request);
    }
  } else if (std::holds_alternative<core::JobDone>(message)) {
    in_round_ = false;
  } else if (std::holds_alternative<core::Rejected>(message)) {
    state_ = State::kLeaving;  // final: the coordinator ends the stream
    EndLease(now);
  }
  return true;
}

void Session::Remember(const std::optional<plan::Plan>& plan, const plan::Request& request) {
  if (plan.has_value()) {
    hello_.last_plan = {request, plan->world_size};
    return;
  }
  // The program has not spoken yet in this round: what it made of the last one is held.
  hello_.last_plan.request.learned_max_micro_batch_size = request.learned_max_micro_batch_size;
  hello_.last_plan.request.uneven_micro_steps = request.uneven_micro_steps;
}

void Session::Welcomed(const core::Welcome& welcome) {
  state_ = State::kConnected;
  was_connected_ = true;
  heartbeat_interval_ =
      std::min(welcome.heartbeat_interval, welcome.heartbeat_timeout / kMinHeartbeatsPerTimeout);
  silence_limit_ = welcome.heartbeat_timeout - kSilentHeartbeats * heartbeat_interval_;
  lease_ = welcome.heartbeat_timeout - heartbeat_interval_;
  reconnect_within_ = welcome.reconnect_grace * kQuartersOfGrace / 4;
  Acknowledged(hello_sent_at_);
  heartbeat_at_ = hello_sent_at_ + heartbeat_interval_;
}

void Session::Acknowledged(Instant sent) {
  lease_until_ = std::max(lease_until_.value_or(Instant{}), sent + lease_);
}

void Session::EndLease(Instant now) {
  if (lease_until_.has_value()) {
    lease_until_ = std::min(*lease_until_, now);
  }
}

SessionActions Session::OnStreamEnded(Instant now, int attempt, const absl::Status& status) {
  SessionActions actions;
  if (attempt != attempt_ || !has_stream_ || state_ == State::kClosed) {
    return actions;
  }
  has_stream_ = false;
  if (state_ == State::kLeaving) {
    state_ = State::kClosed;
  } else if (IsFinal(status)) {
    Lose(now,
         absl::Status(status.code(), absl::StrCat("the coordinator at ", options_.endpoint,
                                                  " ended the session: ", status.message())),
         actions);
  } else {
    Disconnected(
        now, status.ok() ? "the coordinator closed the session" : std::string(status.message()));
  }
  return actions;
}

void Session::Break(Instant now, const std::string& why, SessionActions& actions) {
  actions.emplace_back(CancelStream{});
  has_stream_ = false;
  Disconnected(now, why);
}

void Session::Disconnected(Instant now, std::string why) {
  last_error_ = std::move(why);
  if (state_ != State::kConnected) {
    retry_at_ = now + kRetryInterval;
    return;
  }
  state_ = State::kConnecting;
  give_up_at_ = now + reconnect_within_;
  notice_at_ = give_up_at_;
  started_ = last_heard_;
  retry_at_ = now;  // at once: the grace to come back is short
}

// ---- from the clock ---------------------------------------------------------

std::optional<Instant> Session::deadline() const {
  switch (state_) {
    case State::kConnected:
      return BoundByLease(std::min(heartbeat_at_, last_heard_ + silence_limit_));
    case State::kConnecting: {
      const Instant next = std::min(BoundByLease(give_up_at_), notice_at_);
      return has_stream_ ? next : std::min(next, retry_at_);
    }
    case State::kLeaving:
    case State::kClosed:
      break;
  }
  return std::nullopt;
}

Instant Session::BoundByLease(Instant otherwise) const {
  const bool counts = in_round_ && lease_until_.has_value() && !options_.is_irreplaceable;
  return counts ? std::min(otherwise, *lease_until_) : otherwise;
}

SessionActions Session::OnTime(Instant now) {
  SessionActions actions;
  if (state_ == State::kConnected && now >= heartbeat_at_) {
    SendHeartbeat(now, 0, actions);
    heartbeat_at_ = now + heartbeat_interval_;
  }
  if (state_ == State::kConnected && now >= BoundByLease(last_heard_ + silence_limit_)) {
    Break(now,
          now >= last_heard_ + silence_limit_ ? "it has gone silent"
                                              : "it acknowledges no heartbeats",
          actions);
  }
  if (state_ == State::kConnecting) {
    TryToConnect(now, actions);
  }
  return actions;
}

void Session::TryToConnect(Instant now, SessionActions& actions) {
  if (now >= BoundByLease(give_up_at_)) {
    Lose(now, OutOfReach(now), actions);
    return;
  }
  if (now >= notice_at_) {
    actions.emplace_back(
        ClientNotice{absl::StrCat("still trying to reach the coordinator at ", options_.endpoint,
                                  " after ", Seconds(now - started_), " s: ", Problem())});
    notice_at_ = now + kNoticeInterval;
  }
  if (!has_stream_ && now >= retry_at_) {
    Open(now, actions);
  }
}

absl::Status Session::OutOfReach(Instant now) const {
  return absl::UnavailableError(absl::StrCat(
      was_connected_ ? "lost the coordinator at " : "could not reach a coordinator at ",
      options_.endpoint, " for ", Seconds(now - started_), " s: ", Problem(),
      was_connected_ ? "; its host, its ddlaunch or the network between is gone"
                     : "; is ddlaunch running on the endpoint's host, is the port the same, and "
                       "is it not held by another program?"));
}

std::string Session::Problem() const {
  return last_error_.empty() ? "no answer" : last_error_;
}

void Session::Lose(Instant now, absl::Status status, SessionActions& actions) {
  if (has_stream_) {
    actions.emplace_back(CancelStream{});
    has_stream_ = false;
  }
  state_ = State::kClosed;
  EndLease(now);
  actions.emplace_back(ClientLost{std::move(status)});
}

}  // namespace ddl
