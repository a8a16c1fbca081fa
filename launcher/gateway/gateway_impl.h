// Gateway::Impl: the worker gateway's state, shared by gateway.cc (its life and
// the coordinator's answers), gateway_calls.cc (the workers' calls) and
// gateway_memory.cc (out of memory, and the plan's revisions).
#ifndef DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_IMPL_H_
#define DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_IMPL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/plan/plan.h"
#include "launcher/gateway/gateway.h"
#include "launcher/gateway/gateway_reactor.h"
#include "launcher/gateway/private_directory.h"

namespace ddl {

class Gateway::Impl {
 public:
  Impl(std::string job_id, std::string host, SendFn send)
      : job_id_(std::move(job_id)), host_(std::move(host)), send_(std::move(send)) {}
  ~Impl() { Shutdown(); }

  absl::Status Serve();
  void BeginRound(const core::RoundStart& round, const std::string& address) {
    round_ = round;
    address_ = address;
    out_of_memory_.clear();
  }
  void RemoveDirectory() { directory_.Remove(); }
  void Resend();
  void EndRound(const std::string& why);
  void OnMessage(const core::KeyValue& message);
  void OnMessage(const core::BarrierDone& message);
  void OnMessage(const core::PlanReply& message);
  void OnMessage(const core::PlanChanged& message);
  void OnReady(Instant now);

  [[nodiscard]] std::optional<Instant> deadline();
  [[nodiscard]] int poll_fd() { return service_.calls().fd(); }
  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] const std::string& directory() const { return directory_.path(); }
  [[nodiscard]] std::optional<Progress> progress(std::int32_t local_rank) const {
    const auto it = progress_.find(local_rank);
    return it == progress_.end() ? std::nullopt : std::optional(it->second);
  }

  [[nodiscard]] std::optional<std::string> open_group(std::int32_t local_rank) const {
    const auto it = open_groups_.find(local_rank);
    return it == open_groups_.end() || it->second.empty() ? std::nullopt
                                                          : std::optional(*it->second.begin());
  }

  [[nodiscard]] std::optional<MemoryReport> out_of_memory(std::int32_t local_rank) const {
    const auto it = out_of_memory_.find(local_rank);
    return it == out_of_memory_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  struct KeyState {
    std::optional<std::string> value;
    bool asked = false;         // the coordinator was asked for it
    std::vector<Call> waiting;  // Publish and Fetch calls
  };
  struct BarrierState {
    std::set<std::int32_t> arrived;  // local ranks
    bool done = false;
    std::vector<Call> waiting;
  };
  struct PlanState {
    // What each local rank offered: all must be equal.
    std::optional<std::pair<std::int32_t, plan::Request>> offered;
    std::optional<core::PlanReply> reply;
    std::vector<Call> waiting;
  };

  void Handle(Call call);
  void Handle(const Call& call, const RegisterExchange& body);
  void Handle(const Call& call, const PublishExchange& body);
  void Handle(const Call& call, const FetchExchange& body);
  void Handle(const Call& call, const BarrierExchange& body);
  void Handle(const Call& call, const AgreePlanExchange& body);
  void Handle(const Call& call, const MarkGroupExchange& body);
  void Handle(const Call& call, const ReportOutOfMemoryExchange& body);
  void Handle(const Call& call, const WatchPlanExchange& body);
  void Handle(const Call& call, const ReportProgressExchange& body);

  absl::Status CheckRound(std::int64_t round) const;
  absl::Status CheckLocalRank(std::int32_t local_rank) const;
  absl::Status CheckRoomFor(const std::string& key) const;
  static void AnswerKey(const Call& call, const std::string& value);
  void AnswerPlan(const Call& call) const;
  void SendReport(const ddlaunch::v1::ReportOutOfMemoryRequest& report) const;
  void RefuseReports(const core::PlanChanged& refusal);
  void EndWatchOf(std::int32_t local_rank);
  // Every list of waiting calls, with the words for one whose time is up.
  template <typename Fn>
  void ForEachWaitingList(const Fn& fn);
  [[nodiscard]] std::string MissingAt(const std::string& name, const BarrierState& barrier) const;
  void Shutdown();

  const std::string job_id_;
  const std::string host_;
  const SendFn send_;
  PrivateDirectory directory_;  // outlives the server
  std::string target_;
  GatewayService service_;
  std::unique_ptr<grpc::Server> server_;

  std::optional<core::RoundStart> round_;
  std::string address_;  // in this round
  std::map<std::string, KeyState> keys_;
  std::map<std::string, BarrierState> barriers_;
  PlanState plan_;
  std::optional<core::PlanChanged> revision_;  // the last of this round
  std::vector<Call> reports_;                  // ReportOutOfMemory, not answered yet
  std::vector<Call> watchers_;                 // WatchPlan, one a local rank
  // What workers that cannot go on said of their device's memory, by local rank. Kept
  // until the next round: they end when this one is over, or after.
  std::map<std::int32_t, MemoryReport> out_of_memory_;
  std::map<std::int32_t, Progress> progress_;
  std::map<std::int32_t, std::set<std::string>> open_groups_;  // by local rank
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_IMPL_H_
