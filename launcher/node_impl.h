// Node: the class behind RunNode. node.cc has its start, its loop, the user's
// signals and its end; node_rounds.cc what the coordinator says and what becomes
// of the workers. One thread owns it.
#ifndef DDLAUNCH_LAUNCHER_NODE_IMPL_H_
#define DDLAUNCH_LAUNCHER_NODE_IMPL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/base/host.h"
#include "agent/client/rendezvous_client.h"
#include "agent/core/types.h"
#include "launcher/failures/failure_account.h"
#include "launcher/failures/round_report.h"
#include "launcher/gateway/gateway.h"
#include "launcher/launch_config.h"
#include "launcher/log.h"
#include "launcher/logs/event_log.h"
#include "launcher/master_store.h"
#include "launcher/net/meeting_place.h"
#include "launcher/net/port_reservation.h"
#include "launcher/plan_lines.h"
#include "launcher/process/supervisor.h"
#include "launcher/signals.h"
#include "launcher/worker/worker_group.h"

namespace ddl {

class Node {
 public:
  Node(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor, SignalSet& signals)
      : config_(config), signals_(signals), host_(HostName()), supervisor_(std::move(supervisor)) {
    if (config_.event_log) {
      events_.emplace(config_, host_, MonotonicNow());
    }
  }

  int Run();

 private:
  enum class State : std::uint8_t { kJoining, kRunning, kStopping, kLeaving };
  // Other nodes are waited for; the user is reminded, less and less often.
  struct Waiting {
    std::string text;  // who is there
    Instant since;
    Instant remind_at;
  };
  struct Result {
    int exit_code = 0;
    std::string text;
    std::optional<core::WorkerFailure> root_cause;
  };

  absl::Status Join();
  bool StopWasAskedFor();
  [[nodiscard]] core::AgentConnected MakeHello(std::uint16_t master_port) const;
  [[nodiscard]] std::string AdvertisedAddress() const;
  // Where --env has a framework whose programs must find each other.
  [[nodiscard]] MasterStore::Options StoreOptions() const;
  absl::Status ReserveWorkerPorts();
  // Errors: those of WorkerGroup::Start; FAILED_PRECONDITION, what --env needs
  // did not come with the round.
  absl::Status StartWorkers(RoundInfo info);
  void Loop();
  void Wait() const;
  void Dispatch(Instant now);

  void OnSignal(int signal, Instant now);
  void OnSuspend(bool stopping);
  void OnWorkerExit(const WorkerExit& exit);
  [[nodiscard]] FailureEvidence EvidenceOf(const WorkerExit& exit) const;
  void StopWorkers(const std::string& text, Instant now);
  void EndLastMoment(Instant now);
  // To the coordinator.
  void TellFailure(core::WorkerFailure failure, Instant failed_at);
  void OnGroupIdle();
  // To the coordinator, too: how this round ended here.
  void Report(core::Event outcome);

  void On(const core::Welcome& message);
  void On(const core::Rejected& message);
  void On(const core::Waiting& message);
  void On(const core::Spare& message);
  void On(const core::RoundStart& message);
  void On(const core::RoundStop& message);
  void On(const core::KeyValue& message) { gateway_->OnMessage(message); }
  void On(const core::BarrierDone& message) { gateway_->OnMessage(message); }
  void On(const core::PlanReply& message);
  void On(const core::PlanChanged& message);
  void On(const core::JobDone& message);
  void On(const core::Message& message) {
    std::visit([this](const auto& one) { On(one); }, message);
  }
  void On(const ClientNotice& notice) { log::Info(notice.text); }
  void On(const ClientLost& lost);

  void Finish(Result result);
  void FinishAlone();
  // This node is out of the job, and no result comes any more. `exit_code` is for
  // when neither the user's stop nor a cause it was told of says better.
  void LosePlace(int exit_code, std::string text);
  void SayProgress() const;
  void SayOutOfMemory(const core::WorkerFailure& failure) const;
  // Events for whoever watches, if they were asked for (--event-log-handler).
  void TellOfStart(const RoundInfo& info);
  void TellOfExit(EventState state, const WorkerExit& exit) const;
  void TellOfEnd() const;
  void RemindOfWaiting(Instant now);
  void SayChange(const core::RoundStart& message) const;
  // One node speaks for all.
  void SayPlan(const std::vector<PlanLine>& lines) const;
  [[nodiscard]] bool done() const;
  void FlushConsole();
  // For whoever started this ddlaunch and wants to know.
  void WriteErrorFile(const Result& result) const;
  int Leave();
  // A stop signal takes only this node out of the job.
  [[nodiscard]] bool StopsAlone() const {
    return config_.min_nodes < config_.max_nodes && place_.coordinator == nullptr;
  }

  const LaunchConfig& config_;
  SignalSet& signals_;
  const std::string host_;
  std::unique_ptr<Supervisor> supervisor_;  // given to group_
  MeetingPlace place_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<WorkerGroup> group_;
  std::unique_ptr<RendezvousClient> client_;
  std::optional<MasterStore> store_;
  std::vector<PortReservation> worker_ports_;  // by local rank

  State state_ = State::kJoining;
  std::int64_t round_ = 0;
  std::optional<Waiting> waiting_;
  std::int32_t world_size_ = 0;  // of round_
  std::int32_t node_rank_ = 0;   // in it
  PlanLines plan_lines_{config_.plan};
  bool parked_ = false;  // a spare
  bool said_whose_heartbeats_ = false;
  bool said_what_is_kept_ = false;
  bool group_was_running_ = false;
  std::optional<Instant> told_to_stop_at_;  // this round's workers
  // A collective broke: whoever broke it may be on its way out, and its own end says
  // why. So long the workers may leave by themselves before they are told to.
  struct LastMoment {
    Instant until;
    std::string text;  // why the round ends
  };
  std::optional<LastMoment> last_moment_;
  Instant last_moment_ended_at_{};
  bool stopped_by_broken_collective_ = false;
  RoundReport report_;
  // This node's failures of this round, and where each one's error file is, by its
  // pid.
  std::vector<core::WorkerFailure> failures_;
  std::map<std::int64_t, std::string> error_files_;
  int stop_signal_ = 0;
  std::optional<Instant> leave_without_result_at_;
  std::optional<core::WorkerFailure> told_cause_;  // of a round that is not restarted
  std::optional<Result> result_;
  std::optional<EventLog> events_;
  Instant gathering_since_ = MonotonicNow();  // for the next round
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_NODE_IMPL_H_
