// Node, its rounds: what the coordinator says, and what becomes of the workers.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "agent/core/wording.h"
#include "launcher/binding/node_devices.h"
#include "launcher/exit_code.h"
#include "launcher/failures/failure_account.h"
#include "launcher/node_impl.h"
#include "launcher/round_values.h"
#include "launcher/worker/framework_env.h"
#include "launcher/worker/worker_env.h"

namespace ddl {
namespace {

constexpr Duration kFirstReminder = std::chrono::seconds(30);

Moment MomentNow() {
  return {MonotonicNow(), std::time(nullptr)};
}

}  // namespace

void Node::Report(core::Event outcome) {
  client_->Send(report_.Ended(std::move(outcome)));
}

void Node::On(const core::Welcome& message) {
  const Duration usual = LaunchConfig{}.heartbeat_timeout;
  if (config_.heartbeat_timeout != usual &&
      config_.heartbeat_timeout != message.heartbeat_timeout &&
      !std::exchange(said_whose_heartbeats_, true)) {
    log::Warn(absl::StrCat("the coordinator's heartbeat_timeout holds, ",
                           core::InSeconds(message.heartbeat_timeout), ", not this node's ",
                           core::InSeconds(config_.heartbeat_timeout)));
  }
  for (const core::Event& event : report_.Again(MonotonicNow())) {
    client_->Send(event);
  }
  if (stop_signal_ != 0) {
    client_->Send(core::StopRequested{{}, stop_signal_, StopsAlone()});
  }
  gateway_->Resend();
}

void Node::On(const core::RoundStart& message) {
  if (message.round <= round_ || state_ == State::kLeaving || !group_->idle()) {
    return;  // repeated after a reconnect
  }
  SayChange(message);
  round_ = message.round;
  world_size_ = message.world_size;
  parked_ = false;
  waiting_.reset();
  state_ = State::kRunning;
  failures_.clear();
  report_.Begin(round_);
  error_files_.clear();
  told_to_stop_at_.reset();
  told_cause_.reset();
  last_moment_.reset();
  last_moment_ended_at_ = {};
  if (stop_signal_ != 0) {
    return;  // the stop crossed it on the way: the answer to it is RoundStop
  }
  gateway_->BeginRound(message, place_.own_address);
  const RoundInfo info = ToRoundInfo(message, config_.job_id, gateway_->target());
  log::Debug(absl::StrCat("round ", info.round, ": node ", info.node_rank, " of ", info.num_nodes,
                          ", ranks ", info.first_rank, " to ", info.first_rank + info.nproc - 1,
                          " of ", info.world_size, ", master ", info.master_addr, ":",
                          info.master_port));
  node_rank_ = message.node_rank;
  SayPlan(plan_lines_.OnStart(message));
  TellOfStart(info);
  group_was_running_ = true;
  if (const absl::Status status = StartWorkers(info); !status.ok()) {
    WorkerExit exit;
    exit.rank = info.first_rank;
    exit.wall_time_s = std::time(nullptr);
    exit.ended_at = exit.failed_at = MonotonicNow();
    exit.exit_code = ExitCodeFor(status);
    exit.error_text = std::string(status.message());
    OnWorkerExit(exit);
  }
}

absl::Status Node::StartWorkers(RoundInfo info) {
  DDL_RETURN_IF_ERROR(CheckFrameworks(config_.frameworks, info));
  const std::vector<std::string> environment = OwnEnvironment();
  info.devices = LookAtDevices(environment, DeviceSources{});
  if (const std::string words = OverruledByPlan(environment, config_, info); !words.empty()) {
    log::Warn(words);
  }
  const auto kept = KeptFromWorkers(environment, config_.frameworks, info);
  if (!kept.empty() && info.node_rank == 0 && !std::exchange(said_what_is_kept_, true)) {
    const auto some = static_cast<std::ptrdiff_t>(std::min(kept.size(), core::kMaxNamed));
    log::Info(absl::StrCat("not passed on to the workers, as they number this ddlaunch: ",
                           core::NameSome({kept.begin(), kept.begin() + some}, kept.size())));
  }
  DDL_RETURN_IF_ERROR(store_->BeginRound(info.node_rank == 0, info.master_port));
  return group_->Start(info);
}

void Node::TellFailure(core::WorkerFailure failure, Instant failed_at) {
  client_->Send(report_.Failed(std::move(failure), failed_at, MonotonicNow()));
}

FailureEvidence Node::EvidenceOf(const WorkerExit& exit) const {
  if (state_ != State::kStopping || !told_to_stop_at_.has_value()) {
    return FailureEvidence::kNone;
  }
  const bool before_signal = last_moment_.has_value() || exit.ended_at < last_moment_ended_at_;
  if (before_signal && !exit.ok() && !group_->lease_passed()) {
    return FailureEvidence::kEnded;
  }
  const bool reported = gateway_->out_of_memory(exit.local_rank).has_value();
  return EvidenceOfFailure(exit, *told_to_stop_at_, {&config_.oom_exit_codes, reported});
}

// It may replace the cause that was said, and the next round is not like the last.
void Node::SayOutOfMemory(const core::WorkerFailure& failure) const {
  const bool is_first =
      std::none_of(failures_.begin(), failures_.end(),
                   [](const core::WorkerFailure& other) { return other.out_of_memory; });
  if (failure.out_of_memory && is_first) {
    log::Warn(core::Describe(failure) + " for lack of device memory");
    log::Info("hint: " + failure.hint);
  }
}

void Node::OnWorkerExit(const WorkerExit& exit) {
  const FailureEvidence evidence = EvidenceOf(exit);
  if (evidence != FailureEvidence::kNone) {
    TellOfExit(EventState::kFailed, exit);
    core::WorkerFailure failure = ToFailure(exit, host_);
    const bool by_our_signal = evidence != FailureEvidence::kEnded &&
                               (exit.term_signal == SIGTERM || exit.term_signal == SIGKILL);
    if (by_our_signal) {
      failure.term_signal = 0;
      failure.exit_code = kExitFailure;  // as it would have ended without our signal
      failure.hint.clear();
    }
    MarkOutOfMemory(config_.oom_exit_codes, gateway_->out_of_memory(exit.local_rank), failure);
    if (evidence == FailureEvidence::kLastWords && !stopped_by_broken_collective_) {
      failure.blames_peer = true;  // a guess is no match for one that ended by itself
    }
    SayOutOfMemory(failure);
    error_files_[exit.pid] = exit.error_path;
    failures_.push_back(failure);
    TellFailure(std::move(failure), exit.failed_at);
    return;
  }
  // Once the round is over we end the workers ourselves: by these two signals.
  const bool by_us = (state_ != State::kRunning || stop_signal_ != 0 || group_->lease_passed()) &&
                     (exit.term_signal == SIGTERM || exit.term_signal == SIGKILL);
  const std::optional<std::string> left_group =
      exit.ok() && state_ == State::kRunning && stop_signal_ == 0
          ? gateway_->open_group(exit.local_rank)
          : std::nullopt;
  TellOfExit(by_us       ? EventState::kTerminated
             : exit.ok() ? EventState::kSucceeded
                         : EventState::kFailed,
             exit);
  if ((exit.ok() && !left_group.has_value()) || by_us) {
    return;
  }
  error_files_[exit.pid] = exit.error_path;
  failures_.push_back(ToFailure(exit, host_));
  MarkOutOfMemory(config_.oom_exit_codes, gateway_->out_of_memory(exit.local_rank),
                  failures_.back());
  if (left_group.has_value()) {
    failures_.back().error_text =
        "it left with 0 in the middle of the work: its peers wait for it in group " + *left_group;
  }
  if (state_ == State::kRunning) {
    TellFailure(failures_.back(), exit.failed_at);
  }
}

void Node::OnGroupIdle() {
  gathering_since_ = MonotonicNow();
  EndLastMoment(gathering_since_);
  if (state_ == State::kRunning && group_->lease_passed()) {
    log::Warn(
        "the workers were killed: this ddlaunch stood still, or was cut off from the coordinator, "
        "for so long that others may have their ranks by now");
    state_ = State::kStopping;
  }
  if (state_ == State::kRunning) {
    if (failures_.empty() && stop_signal_ == 0) {
      Report(core::WorkersSucceeded{{}, round_});
    }
    return;
  }
  if (state_ == State::kStopping) {
    if (const auto master_port = store_->NextPort(); master_port.ok()) {
      client_->SetMasterPort(*master_port);
    } else {
      log::Warn(std::string(master_port.status().message()));
    }
    Report(core::RoundStopped{{}, round_});
  }
}

// What is different from this node's last round.
void Node::SayChange(const core::RoundStart& message) const {
  if (round_ == 0 && config_.min_nodes == config_.max_nodes) {
    return;
  }
  log::Info(absl::StrCat("round ", message.round, ": ", message.num_nodes,
                         message.num_nodes == 1 ? " node, " : " nodes, ", "world size ",
                         message.world_size,
                         world_size_ == 0 || world_size_ == message.world_size
                             ? ""
                             : absl::StrCat(" (was ", world_size_, ")"),
                         ", restart ", message.restart_count, " of ", message.max_restarts));
}

void Node::On(const core::RoundStop& message) {
  const bool known = message.round == round_ && state_ == State::kStopping;
  if (message.round < round_ || known || state_ == State::kLeaving) {
    return;
  }
  round_ = message.round;  // perhaps one whose start was lost with a stream
  state_ = State::kStopping;
  told_to_stop_at_ = told_to_stop_at_.value_or(MonotonicNow());
  if (!message.will_restart) {
    told_cause_ = message.root_cause;
  }
  stopped_by_broken_collective_ =
      message.root_cause.has_value() && BlamesPeerOfCollective(message.root_cause->error_text);
  SayProgress();
  if (message.reason == core::Reason::kNodeLeft && stop_signal_ != 0) {
    // That is us; it was said.
  } else if (message.reason == core::Reason::kNodeJoined) {
    log::Info(message.text);
  } else if (message.reason == core::Reason::kOutOfMemory) {
    log::Warn(message.text);
    if (message.root_cause.has_value()) {
      log::Info("hint: " + message.root_cause->hint);
    }
  } else if (message.will_restart) {
    const bool by_failure = message.reason == core::Reason::kWorkerFailed;
    log::Warn(absl::StrCat(message.text, by_failure ? "; restarting" : "; gathering again"));
  } else if (message.reason != core::Reason::kStoppedByUser || stop_signal_ == 0) {
    log::Warn(message.text);
  }
  const Instant now = MonotonicNow();
  if (group_->idle()) {
    StopWorkers(message.text, now);
    group_was_running_ = false;
    OnGroupIdle();
  } else if (stop_signal_ == 0 && message.root_cause.has_value() &&
             message.root_cause->blames_peer) {
    constexpr Duration kLastMoment = std::chrono::seconds(2);
    last_moment_ = LastMoment{now + std::min(kLastMoment, config_.shutdown_timeout), message.text};
  } else {
    StopWorkers(message.text, now);
  }
}

void Node::StopWorkers(const std::string& text, Instant now) {
  // Workers that wait in a call must hear of it, to end within their grace.
  gateway_->EndRound("the round is over: " + text);
  group_->Stop(now);
}

void Node::EndLastMoment(Instant now) {
  if (last_moment_.has_value()) {
    const std::string text = std::exchange(last_moment_, std::nullopt)->text;
    last_moment_ended_at_ = now;
    StopWorkers(text, now);
  }
}

void Node::On(const core::PlanChanged& message) {
  SayPlan(plan_lines_.OnChanged(message));
  gateway_->OnMessage(message);
}

void Node::On(const core::PlanReply& message) {
  SayPlan(plan_lines_.OnAgreed(message));
  gateway_->OnMessage(message);
}

void Node::SayPlan(const std::vector<PlanLine>& lines) const {
  for (const PlanLine& line : lines) {
    if (node_rank_ != 0) {
      log::Debug(line.text);
    } else {
      line.is_loud ? log::Warn(line.text) : log::Info(line.text);
    }
  }
}

void Node::On(const core::JobDone& message) {
  const int exit_code = stop_signal_ != 0 ? kSignalExitBase + stop_signal_ : message.exit_code;
  std::string text = message.exit_code == 0 ? "" : message.text;
  if (message.reason == core::Reason::kJoinTimeout && !place_.hint.empty()) {
    absl::StrAppend(&text, "; ", place_.hint);
  }
  Finish({exit_code, std::move(text), message.root_cause});
}

void Node::On(const core::Waiting& message) {
  const Instant now = MonotonicNow();
  if (!waiting_.has_value()) {
    waiting_ = Waiting{"", now, now + kFirstReminder};
  }
  waiting_->text = message.text;
  log::Info(message.text);
}

void Node::RemindOfWaiting(Instant now) {
  if (!waiting_.has_value() || now < waiting_->remind_at) {
    return;
  }
  const Duration waited = now - waiting_->since;
  waiting_->remind_at = now + waited;
  log::Info(
      absl::StrCat("still waiting after ",
                   std::chrono::duration_cast<std::chrono::seconds>(waited).count(), " s (at most ",
                   std::chrono::duration_cast<std::chrono::seconds>(config_.join_timeout).count(),
                   " s): ", waiting_->text));
}

void Node::On(const core::Spare& message) {
  parked_ = true;
  waiting_.reset();
  log::Info(message.text);
}

void Node::On(const core::Rejected& message) {
  const bool is_usage = message.reason == core::Reason::kTermsDiffer ||
                        message.reason == core::Reason::kPlanDiffers ||
                        message.reason == core::Reason::kPlanImpossible ||
                        message.reason == core::Reason::kNodeRankOutOfRange ||
                        message.reason == core::Reason::kInvalid;
  LosePlace(is_usage ? kExitUsage : kExitFailure, message.text);
}

void Node::On(const ClientLost& lost) {
  LosePlace(kExitFailure, std::string(lost.status.message()));
}

void Node::LosePlace(int exit_code, std::string text) {
  // Others may take this node's place from now on: no grace for its workers.
  if (!group_->idle()) {
    group_->Kill();
  }
  if (stop_signal_ != 0) {
    exit_code = kSignalExitBase + stop_signal_;
  } else if (told_cause_.has_value()) {
    exit_code = core::ExitCodeOf(*told_cause_);
  }
  Finish({exit_code, std::move(text), told_cause_});
}

void Node::SayProgress() const {
  if (const auto progress = gateway_->progress(0); progress.has_value()) {
    log::Info(absl::StrCat("local rank 0 had reported step ", progress->step));
  }
}

void Node::TellOfStart(const RoundInfo& info) {
  if (!events_.has_value()) {
    return;
  }
  events_->SetRound(info);
  const Moment now = MomentNow();
  std::string lines =
      events_->OfAgent(EventState::kRendezvous, now.instant - gathering_since_, "", now);
  for (std::int32_t local_rank = 0; local_rank < info.nproc; ++local_rank) {
    lines += events_->OfStart(local_rank, now);
  }
  log::Raw(lines);
}

void Node::TellOfExit(EventState state, const WorkerExit& exit) const {
  if (events_.has_value()) {
    log::Raw(events_->OfExit(state, exit, MomentNow()));
  }
}

void Node::TellOfEnd() const {
  if (!events_.has_value()) {
    return;
  }
  const bool has_words =
      result_->root_cause.has_value() && !result_->root_cause->error_text.empty();
  log::Raw(events_->OfAgent(
      result_->exit_code == 0 ? EventState::kSucceeded : EventState::kFailed, std::nullopt,
      has_words ? result_->root_cause->error_text : result_->text, MomentNow()));
}

}  // namespace ddl
