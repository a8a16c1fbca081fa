// The life of a node.
#include "launcher/node.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/ids.h"
#include "agent/base/signal_name.h"
#include "agent/base/status_macros.h"
#include "launcher/descriptor_limit.h"
#include "launcher/exit_code.h"
#include "launcher/failures/failure_report.h"
#include "launcher/failures/outer_error_file.h"
#include "launcher/log.h"
#include "launcher/node_impl.h"
#include "launcher/poll_until.h"
#include "launcher/signals.h"
#include "launcher/worker/framework_env.h"

namespace ddl {
namespace {

constexpr Duration kOwnHostTimeout = std::chrono::seconds(4);
// However long the endpoint's name took to resolve.
constexpr Duration kLeastConnectTimeout = std::chrono::seconds(1);
// How long a goodbye may take.
constexpr Duration kLeaveTimeout = std::chrono::seconds(5);
// After a stop by the user and the end of the workers: how long to wait for the
// coordinator's word before leaving without it. More than the coordinator's own
// margin for nodes that do not answer.
constexpr Duration kResultTimeout = std::chrono::seconds(8);
// How long the console may take for the last output when the user wants out.
constexpr Duration kFlushTimeoutStopped = std::chrono::seconds(1);

}  // namespace

std::string Node::AdvertisedAddress() const {
  return config_.master_addr.empty() || config_.max_nodes > 1 ? place_.own_address
                                                              : config_.master_addr;
}

MasterStore::Options Node::StoreOptions() const {
  const DescriptorUse others{
      .nproc = config_.nproc,
      .worker_ports = NeedsWorkerPorts(config_.frameworks),
      .nodes = place_.coordinator != nullptr && config_.max_nodes > 1 ? config_.max_nodes : 0,
  };
  return {
      .address = AdvertisedAddress(),
      .address_flag = AdvertisedAddress() == config_.local_addr ? "--local-addr" : "--master-addr",
      // Only whoever has rank 0 for sure may hold the user's port.
      .port =
          config_.max_nodes == 1 || config_.node_rank == 0 ? config_.master_port : std::uint16_t{0},
      .worker_store = config_.worker_store,
      .max_connections = DescriptorsForStore(others),
  };
}

absl::Status Node::ReserveWorkerPorts() {
  if (!NeedsWorkerPorts(config_.frameworks)) {
    return absl::OkStatus();
  }
  for (std::int32_t i = 0; i < config_.nproc; ++i) {
    DDL_ASSIGN_OR_RETURN(PortReservation reservation, PortReservation::Make());
    worker_ports_.push_back(std::move(reservation));
  }
  return absl::OkStatus();
}

core::AgentConnected Node::MakeHello(std::uint16_t master_port) const {
  core::AgentConnected hello;
  hello.agent = {config_.job_id, NewRandomId()};
  hello.host = host_;
  hello.address = AdvertisedAddress();
  hello.nproc = config_.nproc;
  hello.node_rank = config_.node_rank;
  hello.min_nodes = config_.min_nodes;
  hello.max_nodes = config_.max_nodes;
  hello.max_restarts = config_.max_restarts;
  hello.join_timeout = config_.join_timeout;
  hello.last_call_timeout = config_.last_call_timeout;
  hello.stop_grace = config_.shutdown_timeout;
  hello.plan = config_.plan;
  hello.master_port = master_port;
  for (const PortReservation& reservation : worker_ports_) {
    hello.worker_ports.push_back(reservation.port());
  }
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
  const Instant give_up_at = MonotonicNow() + config_.join_timeout;
  Patience patience{give_up_at, signals_.fd(), [this] { return StopWasAskedFor(); },
                    [](const std::string& text) { log::Info(text); }};
  DDL_ASSIGN_OR_RETURN(
      place_, FindMeetingPlace(config_, patience, [](const core::Explain& explain) {
        // Somebody without the token hears of it; so does this node, which waits.
        const std::string text =
            absl::StrCat("coordinator: ", core::ToString(explain.reason), ": ", explain.text);
        explain.reason == core::Reason::kUnauthenticated ? log::Warn(text) : log::Debug(text);
      }));
  if (place_.is_open_to_network) {
    log::Warn(absl::StrCat("the rendezvous at ", place_.endpoint,
                           " is open: anybody who can reach the port can join this job; give "
                           "every node the same --rdzv-token-file=FILE"));
  }
  group_ = std::make_unique<WorkerGroup>(config_, std::move(supervisor_));
  signals_.SetSuspendHook([this](bool stopping) { OnSuspend(stopping); });
  log::SetSink(
      [group = group_.get()](std::string_view lines) { group->Print(std::string(lines)); });
  store_.emplace(StoreOptions());
  DDL_RETURN_IF_ERROR(store_->FindAddress(patience));
  DDL_ASSIGN_OR_RETURN(const std::uint16_t master_port, store_->NextPort());
  DDL_RETURN_IF_ERROR(ReserveWorkerPorts());
  const Duration left = std::max(give_up_at - MonotonicNow(), kLeastConnectTimeout);
  client_ = std::make_unique<RendezvousClient>(
      place_.coordinator != nullptr ? place_.coordinator->InProcessChannel()
                                    : RendezvousClient::NewChannel(place_.endpoint),
      RendezvousClient::Options{
          .endpoint = place_.endpoint,
          .hello = MakeHello(master_port),
          // A coordinator on this very host answers at once, or is none.
          .connect_timeout = place_.port_was_taken ? std::min(kOwnHostTimeout, left) : left,
          .token = config_.rdzv_token,
          .is_irreplaceable = place_.coordinator != nullptr,
      },
      MonotonicNow());
  return absl::OkStatus();
}

// Before the loop runs there is nothing to stop, and no worker to pass a signal
// on to.
bool Node::StopWasAskedFor() {
  for (const int signal : signals_.Read()) {
    if (signals_.IsStop(signal) && stop_signal_ == 0) {
      stop_signal_ = signal;
    }
  }
  return stop_signal_ != 0;
}

int Node::Run() {
  int exit_code = kExitFailure;
  if (const absl::Status status = Join(); status.ok()) {
    Loop();
    exit_code = Leave();
  } else if (absl::IsCancelled(status)) {
    log::Error(absl::StrCat("stopped by ", SignalName(stop_signal_)));
    exit_code = kSignalExitBase + stop_signal_;
  } else {
    log::Error(std::string(status.message()));
    WriteErrorFile({kExitFailure, std::string(status.message()), std::nullopt});
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
  if (waiting_.has_value()) {
    deadline = std::min(deadline.value_or(waiting_->remind_at), waiting_->remind_at);
  }
  const auto last_moment =
      last_moment_.has_value() ? std::optional(last_moment_->until) : std::nullopt;
  for (const auto& other :
       {client_->deadline(), gateway_->deadline(), group_->deadline(), last_moment}) {
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
  const std::vector<ClientEvent> events = client_->OnReady(now);
  // Before what the events may start. The coordinator's own host needs no lease:
  // nobody can replace it while it stands still.
  if (place_.coordinator == nullptr) {
    group_->SetLease(client_->lease_until().value_or(Instant::max()));
  }
  for (const ClientEvent& event : events) {
    std::visit([this](const auto& one) { On(one); }, event);
  }
  RemindOfWaiting(now);
  if (last_moment_.has_value() && now >= last_moment_->until) {
    EndLastMoment(now);
  }
  gateway_->OnReady(now);
  if (group_was_running_ && group_->idle()) {
    group_was_running_ = false;
    OnGroupIdle();
  }
  if (stop_signal_ != 0 && StopsAlone() && group_->idle()) {
    FinishAlone();
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
  if (!signals_.IsStop(signal)) {
    group_->Forward(signal);
    return;
  }
  if (stop_signal_ != 0 && signal == SIGHUP) {
    return;  // of a terminal that is closed two come: the kernel's and the shell's
  }
  if (stop_signal_ != 0) {
    log::Warn(absl::StrCat(SignalName(signal), " again: killing all workers now"));
    group_->Kill();
    leave_without_result_at_ = now;
    return;
  }
  stop_signal_ = signal;
  if (state_ == State::kJoining || parked_) {
    // Nothing runs here: this node goes, the others may wait for another.
    Finish(
        {kSignalExitBase + signal, absl::StrCat("stopped by ", SignalName(signal)), std::nullopt});
    return;
  }
  if (!group_->idle()) {
    log::Warn(absl::StrCat(
        SignalName(signal), ": stopping the workers (at most ",
        std::chrono::duration_cast<std::chrono::seconds>(config_.shutdown_timeout).count(),
        " s; a second signal kills them at once)"));
  }
  client_->Send(core::StopRequested{{}, signal, StopsAlone()});
  EndLastMoment(now);
  told_to_stop_at_ = now;
  group_->Stop(now);
}

// Ctrl-Z, then fg or bg. The workers are sessions of their own, so the terminal does
// not stop them. Of several nodes, the others do not wait for this one.
void Node::OnSuspend(bool stopping) {
  constexpr Duration kFlushBeforeSuspend = std::chrono::milliseconds(100);
  if (config_.max_nodes > 1) {
    if (stopping) {
      log::Warn(absl::StrCat(
          "stopped: the other nodes take this one for lost in ",
          std::chrono::duration_cast<std::chrono::seconds>(config_.heartbeat_timeout).count(),
          " s, and its workers end then"));
      group_->FlushConsole(kFlushBeforeSuspend);
    }
    return;
  }
  group_->Forward(stopping ? SIGSTOP : SIGCONT);
}

void Node::FinishAlone() {
  Finish({kSignalExitBase + stop_signal_,
          absl::StrCat("stopped by ", SignalName(stop_signal_),
                       "; this node leaves, the job may go on without it"),
          std::nullopt});
}

void Node::Finish(Result result) {
  if (result_.has_value()) {
    return;
  }
  result_ = std::move(result);
  state_ = State::kLeaving;
  leave_without_result_at_.reset();
  waiting_.reset();
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
    if (is_over || std::any_of(signals.begin(), signals.end(),
                               [this](int signal) { return signals_.IsStop(signal); })) {
      log::SetSink(nullptr);
      log::Error("the console did not take all output; the rest is lost");
      return;
    }
  }
}

void Node::WriteErrorFile(const Result& result) const {
  const std::string path = OuterErrorPath();
  if (path.empty() || result.exit_code == 0) {
    return;
  }
  std::string content;
  if (const auto& cause = result.root_cause; cause.has_value()) {
    const auto own = cause->host == host_ ? error_files_.find(cause->pid) : error_files_.end();
    content = OuterErrorFile(*cause, own != error_files_.end() ? own->second : "");
  } else {
    const int code = stop_signal_ != 0 ? -stop_signal_ : result.exit_code;
    content = OuterErrorFile(result.text, code, std::time(nullptr));
  }
  if (const absl::Status written = WriteOuterErrorFile(path, content); !written.ok()) {
    log::Warn(std::string(written.message()));
  }
}

int Node::Leave() {
  WriteErrorFile(*result_);
  TellOfEnd();
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
    place_.coordinator->WaitUntilIdle(config_.close_timeout);
  }
  FlushConsole();
  return result_->exit_code;
}

int RunNode(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor,
            SignalSet& signals) {
  // Never taken down, see node.h.
  static Node* const node = new Node(config, std::move(supervisor), signals);
  return node->Run();
}

}  // namespace ddl
