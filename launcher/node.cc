// The life of a node.
#include "launcher/node.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/host.h"
#include "agent/base/ids.h"
#include "agent/base/status_macros.h"
#include "agent/client/rendezvous_client.h"
#include "agent/core/wording.h"
#include "launcher/exit_code.h"
#include "launcher/gateway/gateway.h"
#include "launcher/log.h"
#include "launcher/net/meeting_place.h"
#include "launcher/net/port_reservation.h"
#include "launcher/poll_until.h"
#include "launcher/round_values.h"
#include "launcher/signals.h"
#include "launcher/worker/failure_report.h"
#include "launcher/worker/supervisor.h"
#include "launcher/worker/worker_group.h"

namespace ddl {
namespace {

constexpr Duration kOwnHostTimeout = std::chrono::seconds(4);
// How long the host of the coordinator waits for the others' goodbyes.
constexpr Duration kLeaveTimeout = std::chrono::seconds(5);
// After a stop by the user and the end of the workers: how long to wait for the
// coordinator's word before leaving without it. More than the coordinator's own
// margin for nodes that do not answer.
constexpr Duration kResultTimeout = std::chrono::seconds(8);
// How long the console may take for the last output when the user wants out.
constexpr Duration kFlushTimeoutStopped = std::chrono::seconds(1);

bool IsStopSignal(int signal) {
  return signal != SIGUSR1 && signal != SIGUSR2;
}

class Node {
 public:
  Node(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor, const SignalSet& signals)
      : config_(config), signals_(signals), host_(HostName()), supervisor_(std::move(supervisor)) {}

  int Run();

 private:
  enum class State : std::uint8_t { kJoining, kRunning, kStopping, kLeaving };
  struct Result {
    int exit_code = 0;
    std::string text;
    std::optional<core::WorkerFailure> root_cause;
  };

  absl::Status Join();
  [[nodiscard]] core::AgentConnected MakeHello(std::uint16_t master_port) const;
  absl::StatusOr<std::uint16_t> NextMasterPort();
  void Loop();
  void Wait() const;
  void Dispatch(Instant now);

  void OnSignal(int signal, Instant now);
  void OnWorkerExit(const WorkerExit& exit);
  void OnGroupIdle();
  // To the coordinator, now and again after each reconnect until it is
  // answered: how this round went here.
  void Report(core::Event outcome);

  void On(const core::Welcome& message);
  void On(const core::Rejected& message);
  void On(const core::Waiting& message);
  void On(const core::Spare& message);
  void On(const core::RoundStart& message);
  void On(const core::RoundStop& message);
  void On(const core::KeyValue& message) { gateway_->OnMessage(message); }
  void On(const core::BarrierDone& message) { gateway_->OnMessage(message); }
  void On(const core::PlanReply& message) { gateway_->OnMessage(message); }
  void On(const core::JobDone& message);
  void On(const core::Message& message) {
    std::visit([this](const auto& one) { On(one); }, message);
  }
  void On(const ClientNotice& notice) { log::Info(notice.text); }
  void On(const ClientLost& lost);

  void Finish(Result result);
  // This node is out of the job, and no result comes any more. `exit_code` is for
  // when neither the user's stop nor a cause it was told of says better.
  void LosePlace(int exit_code, std::string text);
  void SayProgress() const;
  [[nodiscard]] bool done() const;
  void FlushConsole();
  int Leave();

  const LaunchConfig& config_;
  const SignalSet& signals_;
  const std::string host_;
  std::unique_ptr<Supervisor> supervisor_;  // given to group_
  MeetingPlace place_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<WorkerGroup> group_;
  std::unique_ptr<RendezvousClient> client_;
  std::optional<PortReservation> master_port_;

  State state_ = State::kJoining;
  std::int64_t round_ = 0;
  bool group_was_running_ = false;
  std::optional<core::Event> outcome_;
  std::vector<core::WorkerFailure> failures_;  // this node's, of this round
  int stop_signal_ = 0;
  std::optional<Instant> leave_without_result_at_;
  std::optional<core::WorkerFailure> told_cause_;  // of a round that is not restarted
  std::optional<Result> result_;
};

// MASTER_PORT if rank 0 of the next round is here: the user's on a single node,
// else a fresh one, so that nothing left of the last round is in the way.
absl::StatusOr<std::uint16_t> Node::NextMasterPort() {
  if (config_.master_port != 0 && config_.max_nodes == 1) {
    return config_.master_port;
  }
  auto reservation = PortReservation::Make();
  if (!reservation.ok()) {
    return reservation.status();
  }
  master_port_ = *std::move(reservation);
  return master_port_->port();
}

core::AgentConnected Node::MakeHello(std::uint16_t master_port) const {
  core::AgentConnected hello;
  hello.agent = {config_.job_id, NewRandomId()};
  hello.host = host_;
  hello.address = config_.master_addr.empty() || config_.max_nodes > 1 ? place_.own_address
                                                                       : config_.master_addr;
  hello.nproc = config_.nproc;
  hello.node_rank = config_.node_rank;
  hello.min_nodes = config_.min_nodes;
  hello.max_nodes = config_.max_nodes;
  hello.max_restarts = config_.max_restarts;
  hello.join_timeout = config_.join_timeout;
  hello.stop_grace = config_.shutdown_timeout;
  hello.plan = config_.plan;
  hello.master_port = master_port;
  return hello;
}

absl::Status Node::Join() {
  // The gateway comes first: gRPC 1.51 aborts now and then when its last server
  // of a process goes (a coordinator that finds its port taken) while another
  // one starts.
  DDL_ASSIGN_OR_RETURN(gateway_,
                       Gateway::Start(config_.job_id, host_,
                                      [this](const core::Event& event) { client_->Send(event); }));
  DDL_RETURN_IF_ERROR(supervisor_->RemoveAtEnd(gateway_->directory()));
  DDL_ASSIGN_OR_RETURN(place_, FindMeetingPlace(config_, [](const core::Explain& explain) {
                         log::Debug(absl::StrCat("coordinator: ", core::ToString(explain.reason),
                                                 ": ", explain.text));
                       }));
  if (place_.is_open_to_network) {
    log::Warn(absl::StrCat("the rendezvous at ", place_.endpoint,
                           " is open: anybody who can reach the port can join this job"));
  }
  group_ = std::make_unique<WorkerGroup>(config_, std::move(supervisor_));
  log::SetSink(
      [group = group_.get()](std::string_view lines) { group->Print(std::string(lines)); });
  DDL_ASSIGN_OR_RETURN(const std::uint16_t master_port, NextMasterPort());
  client_ = std::make_unique<RendezvousClient>(
      place_.coordinator != nullptr ? place_.coordinator->InProcessChannel()
                                    : RendezvousClient::NewChannel(place_.endpoint),
      RendezvousClient::Options{
          .endpoint = place_.endpoint,
          .hello = MakeHello(master_port),
          // A coordinator on this very host answers at once, or is none.
          .connect_timeout = place_.port_was_taken ? std::min(kOwnHostTimeout, config_.join_timeout)
                                                   : config_.join_timeout,
      },
      MonotonicNow());
  return absl::OkStatus();
}

int Node::Run() {
  int exit_code = kExitFailure;
  if (const absl::Status status = Join(); status.ok()) {
    Loop();
    exit_code = Leave();
  } else {
    log::Error(std::string(status.message()));
    if (group_ != nullptr) {
      FlushConsole();
    }
  }
  if (gateway_ != nullptr) {
    gateway_->RemoveDirectory();
  }
  return exit_code;
}

void Node::Loop() {
  while (!done()) {
    Wait();
    Dispatch(MonotonicNow());
  }
}

bool Node::done() const {
  return result_.has_value() && group_->idle();
}

void Node::Wait() const {
  std::optional<Instant> deadline = leave_without_result_at_;
  for (const auto& other : {client_->deadline(), gateway_->deadline(), group_->deadline()}) {
    if (other.has_value() && (!deadline.has_value() || *other < *deadline)) {
      deadline = other;
    }
  }
  std::array<pollfd, 4> fds{{{signals_.fd(), POLLIN, 0},
                             {client_->poll_fd(), POLLIN, 0},
                             {gateway_->poll_fd(), POLLIN, 0},
                             {group_->poll_fd(), POLLIN, 0}}};
  PollUntil(fds, deadline);
}

void Node::Dispatch(Instant now) {
  for (const int signal : signals_.Read()) {
    OnSignal(signal, now);
  }
  const auto exits = group_->OnReady(now);
  if (!exits.ok()) {
    Finish({kExitFailure, std::string(exits.status().message()), std::nullopt});
    return;
  }
  for (const WorkerExit& exit : *exits) {
    OnWorkerExit(exit);
  }
  for (const ClientEvent& event : client_->OnReady(now)) {
    std::visit([this](const auto& one) { On(one); }, event);
  }
  gateway_->OnReady(now);
  if (group_was_running_ && group_->idle()) {
    group_was_running_ = false;
    OnGroupIdle();
  }
  if (stop_signal_ != 0 && !result_.has_value() && group_->idle() &&
      !leave_without_result_at_.has_value()) {
    // Whoever hosts the coordinator waits for what the others may take.
    leave_without_result_at_ =
        now + kResultTimeout +
        (place_.coordinator != nullptr && state_ != State::kJoining ? config_.shutdown_timeout
                                                                    : Duration::zero());
  }
  if (leave_without_result_at_.has_value() && now >= *leave_without_result_at_) {
    Finish({kSignalExitBase + stop_signal_, "", std::nullopt});
  }
}

void Node::OnSignal(int signal, Instant now) {
  if (!IsStopSignal(signal)) {
    group_->Forward(signal);
    return;
  }
  if (stop_signal_ != 0) {
    log::Warn(absl::StrCat(SignalSet::Name(signal), " again: killing all workers now"));
    group_->Kill();
    leave_without_result_at_ = now;
    return;
  }
  stop_signal_ = signal;
  if (state_ == State::kJoining) {
    // Nothing runs yet: this node goes, the others may wait for another.
    Finish({kSignalExitBase + signal, absl::StrCat("stopped by ", SignalSet::Name(signal)),
            std::nullopt});
    return;
  }
  log::Warn(absl::StrCat(
      SignalSet::Name(signal), ": stopping the workers (at most ",
      std::chrono::duration_cast<std::chrono::seconds>(config_.shutdown_timeout).count(),
      " s; a second signal kills them at once)"));
  client_->Send(core::StopRequested{{}, signal});
  group_->Stop(now);
}

void Node::Report(core::Event outcome) {
  outcome_ = std::move(outcome);
  client_->Send(*outcome_);
}

void Node::On(const core::Welcome& /*message*/) {
  if (outcome_.has_value()) {
    client_->Send(*outcome_);
  }
  if (stop_signal_ != 0) {
    client_->Send(core::StopRequested{{}, stop_signal_});
  }
  gateway_->Resend();
}

void Node::On(const core::RoundStart& message) {
  if (message.round <= round_ || state_ == State::kLeaving || !group_->idle()) {
    return;  // repeated after a reconnect
  }
  round_ = message.round;
  state_ = State::kRunning;
  failures_.clear();
  outcome_.reset();
  if (stop_signal_ != 0) {
    return;  // the stop crossed it on the way: the answer to it is RoundStop
  }
  gateway_->BeginRound(message, place_.own_address);
  const RoundInfo info = ToRoundInfo(message, config_.job_id, gateway_->target());
  log::Debug(absl::StrCat("round ", info.round, ": node ", info.node_rank, " of ", info.num_nodes,
                          ", ranks ", info.first_rank, " to ", info.first_rank + info.nproc - 1,
                          " of ", info.world_size, ", master ", info.master_addr, ":",
                          info.master_port));
  if (info.plan.has_value() && info.node_rank == 0) {
    log::Info(
        absl::StrCat("plan: ", plan::Describe(*info.plan), " [", plan::Hash(*info.plan), "]"));
  }
  group_was_running_ = true;
  if (const absl::Status status = group_->Start(info); !status.ok()) {
    WorkerExit exit;
    exit.rank = info.first_rank;
    exit.wall_time_s = std::time(nullptr);
    exit.exit_code = ExitCodeFor(status);
    exit.error_text = std::string(status.message());
    OnWorkerExit(exit);
  }
}

void Node::OnWorkerExit(const WorkerExit& exit) {
  // Once the round is over we end the workers ourselves: by these two signals.
  const bool by_us = (state_ != State::kRunning || stop_signal_ != 0) &&
                     (exit.term_signal == SIGTERM || exit.term_signal == SIGKILL);
  if (exit.ok() || by_us) {
    return;
  }
  failures_.push_back(ToFailure(exit, host_));
  if (failures_.size() == 1 && state_ == State::kRunning) {
    Report(core::WorkerFailed{{}, round_, failures_.back()});
  }
}

void Node::OnGroupIdle() {
  if (state_ == State::kRunning) {
    if (failures_.empty() && stop_signal_ == 0) {
      Report(core::WorkersSucceeded{{}, round_});
    }
    return;
  }
  if (state_ == State::kStopping) {
    if (const auto master_port = NextMasterPort(); master_port.ok()) {
      client_->SetMasterPort(*master_port);
    } else {
      log::Warn(std::string(master_port.status().message()));
    }
    Report(core::RoundStopped{{}, round_});
  }
}

void Node::On(const core::RoundStop& message) {
  const bool known = message.round == round_ && state_ == State::kStopping;
  if (message.round < round_ || known || state_ == State::kLeaving) {
    return;
  }
  round_ = message.round;  // perhaps one whose start was lost with a stream
  state_ = State::kStopping;
  if (!message.will_restart) {
    told_cause_ = message.root_cause;
  }
  SayProgress();
  // Workers that wait in a call must hear of it, to end within their grace.
  gateway_->EndRound("the round is over: " + message.text);
  if (message.will_restart) {
    log::Warn(absl::StrCat(message.text, "; restarting"));
  } else if (message.reason != core::Reason::kStoppedByUser || stop_signal_ == 0) {
    log::Warn(message.text);
  }
  if (group_->idle()) {
    group_was_running_ = false;
    OnGroupIdle();
  } else {
    group_->Stop(MonotonicNow());
  }
}

void Node::On(const core::JobDone& message) {
  const int exit_code = stop_signal_ != 0 ? kSignalExitBase + stop_signal_ : message.exit_code;
  Finish({exit_code, message.exit_code == 0 ? "" : message.text, message.root_cause});
}

void Node::On(const core::Waiting& message) {
  log::Info(message.text);
}

void Node::On(const core::Spare& message) {
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

void Node::Finish(Result result) {
  if (result_.has_value()) {
    return;
  }
  result_ = std::move(result);
  state_ = State::kLeaving;
  leave_without_result_at_.reset();
  gateway_->EndRound("this node leaves the job");
  if (!group_->idle()) {
    group_->Stop(MonotonicNow());
  }
}

// A reader that is slow, or has paused, loses nothing: we wait for it until the
// user ends it by a signal.
void Node::FlushConsole() {
  constexpr Duration kStep = std::chrono::milliseconds(100);
  std::optional<Instant> give_up_at;
  if (stop_signal_ != 0) {
    give_up_at = MonotonicNow() + kFlushTimeoutStopped;
  }
  while (!group_->FlushConsole(kStep)) {
    const std::vector<int> signals = signals_.Read();
    const bool is_over = give_up_at.has_value() && MonotonicNow() >= *give_up_at;
    if (is_over || std::any_of(signals.begin(), signals.end(), IsStopSignal)) {
      log::SetSink(nullptr);
      log::Error("the console did not take all output; the rest is lost");
      return;
    }
  }
}

int Node::Leave() {
  if (result_->root_cause.has_value()) {
    log::Raw(FormatFailureReport({config_.program_name, *result_->root_cause, failures_}));
  } else if (!result_->text.empty()) {
    log::Error(result_->text);
  }
  client_->Leave(result_->text.empty() ? "done" : result_->text);
  const Instant deadline = MonotonicNow() + kLeaveTimeout;
  while (!client_->closed() && MonotonicNow() < deadline) {
    std::array<pollfd, 1> fds{{{client_->poll_fd(), POLLIN, 0}}};
    PollUntil(fds, deadline);
    client_->OnReady(MonotonicNow());
  }
  if (place_.coordinator != nullptr) {
    place_.coordinator->WaitUntilIdle(kLeaveTimeout);
  }
  FlushConsole();
  return result_->exit_code;
}

}  // namespace

int RunNode(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor,
            const SignalSet& signals) {
  // Never taken down, see node.h.
  static Node* const node = new Node(config, std::move(supervisor), signals);
  return node->Run();
}

}  // namespace ddl
