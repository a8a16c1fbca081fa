// Effects as one line of text each.
#include "tests/golden/render.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddl::core {
namespace {

const char* NameOf(TimerKind kind) {
  switch (kind) {
    case TimerKind::kHeartbeat:
      return "heartbeat";
    case TimerKind::kReconnect:
      return "reconnect";
    case TimerKind::kJoin:
      return "join";
    case TimerKind::kStop:
      return "stop";
    case TimerKind::kLastCall:
      return "last_call";
    case TimerKind::kForget:
      return "forget";
  }
  return "unknown";
}

std::string YesNo(bool value) {
  return value ? "yes" : "no";
}

std::string RenderCause(const std::optional<WorkerFailure>& cause) {
  if (!cause.has_value()) {
    return "";
  }
  return absl::StrCat(" cause=[rank ", cause->rank, " on ", cause->host, " exit=", cause->exit_code,
                      " signal=", cause->term_signal, "]");
}

struct RenderMessage {
  std::string operator()(const Welcome& m) const {
    return absl::StrCat("welcome heartbeat=", Render(m.heartbeat_interval),
                        " timeout=", Render(m.heartbeat_timeout),
                        " grace=", Render(m.reconnect_grace));
  }
  std::string operator()(const HeartbeatAck& /*m*/) const { return "heartbeat_ack"; }
  std::string operator()(const Rejected& m) const {
    return absl::StrCat("rejected ", ToString(m.reason), ": ", m.text);
  }
  std::string operator()(const Waiting& m) const {
    return absl::StrCat("waiting ", m.nodes_joined, "/", m.nodes_needed, ": ", m.text);
  }
  std::string operator()(const Spare& m) const {
    return absl::StrCat("spare ", m.place, ": ", m.text);
  }
  std::string operator()(const RoundStart& m) const {
    return absl::StrCat(
        "round_start round=", m.round, " node_rank=", m.node_rank, "/", m.num_nodes,
        " ranks=", m.first_rank, "-", m.first_rank + m.nproc - 1, "/", m.world_size,
        " restart=", m.restart_count, "/", m.max_restarts, " master=", m.master_addr, ":",
        m.master_port,
        m.plan.has_value() ? absl::StrCat(" plan=[", plan::Describe(*m.plan), "]") : std::string(),
        m.worker_addresses != nullptr
            ? absl::StrCat(" workers=", absl::StrJoin(*m.worker_addresses, ","))
            : std::string());
  }
  std::string operator()(const RoundStop& m) const {
    return absl::StrCat("round_stop round=", m.round, " ", ToString(m.reason),
                        " restart=", YesNo(m.will_restart), RenderCause(m.root_cause), ": ",
                        m.text);
  }
  std::string operator()(const KeyValue& m) const {
    return absl::StrCat("key_value round=", m.round, " ", m.key, "=", m.value);
  }
  std::string operator()(const BarrierDone& m) const {
    return absl::StrCat("barrier_done round=", m.round, " ", m.name);
  }
  std::string operator()(const PlanReply& m) const {
    return absl::StrCat("plan_reply round=", m.round, " ",
                        m.plan.has_value() ? plan::Describe(*m.plan) : "error: " + m.error);
  }
  std::string operator()(const PlanChanged& m) const {
    return absl::StrCat("plan_changed round=", m.round, " revision=", m.revision, " step=", m.step,
                        " rank=", m.rank, " ",
                        m.plan.has_value()
                            ? absl::StrCat("plan=[", plan::Describe(*m.plan), "]: ", m.text)
                            : "error: " + m.error);
  }
  std::string operator()(const JobDone& m) const {
    return absl::StrCat("job_done ", ToString(m.reason), " exit=", m.exit_code,
                        " restarts=", m.restart_count, RenderCause(m.root_cause), ": ", m.text);
  }
};

struct RenderEffect {
  std::string operator()(const Persist& e) const {
    return absl::StrCat("persist #", e.sequence, " round=", e.round, " restarts=", e.restart_count,
                        e.ended ? " ended" : "");
  }
  std::string operator()(const Reply& e) const {
    return absl::StrCat(e.agent.incarnation, " <- ", std::visit(RenderMessage{}, e.message));
  }
  std::string operator()(const ArmTimer& e) const {
    return absl::StrCat("arm ", Render(e.id), " at ", Render(e.deadline.time_since_epoch()));
  }
  std::string operator()(const Explain& e) const {
    return absl::StrCat("explain ", ToString(e.reason), ": ", e.text);
  }
};

}  // namespace

std::string Render(Duration duration) {
  return absl::StrCat(std::chrono::duration<double>(duration).count(), "s");
}

std::string Render(const TimerId& timer) {
  return timer.subject.empty() ? std::string(NameOf(timer.kind))
                               : absl::StrCat(NameOf(timer.kind), " ", timer.subject);
}

std::string Render(const Effect& effect) {
  return std::visit(RenderEffect{}, effect);
}

}  // namespace ddl::core
