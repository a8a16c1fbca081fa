// One JSON object a line; its fields stand in torchrun's order.
#include "launcher/logs/event_log.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace ddl {
namespace {

using Json = nlohmann::ordered_json;

const char* NameOf(EventState state) {
  switch (state) {
    case EventState::kRendezvous:
      return "RENDEZVOUS";
    case EventState::kStart:
      return "START";
    case EventState::kSucceeded:
      return "SUCCEEDED";
    case EventState::kFailed:
      return "FAILED";
    case EventState::kTerminated:
      return "TERMINATED";
  }
  return "";
}

// A bad byte in a name or a message must not cost the event.
std::string Text(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

}  // namespace

// Who the event is about: a worker of this node, or, without one, the node.
struct EventLog::Source {
  std::optional<std::int32_t> local_rank = std::nullopt;
  std::optional<std::int64_t> pid = std::nullopt;
  // Of a worker that ended by itself; negative: a signal.
  std::optional<std::int32_t> exit_code = std::nullopt;
  std::optional<Duration> duration = std::nullopt;
  std::string_view raw_error = {};
};

EventLog::EventLog(const LaunchConfig& config, std::string host, Instant started_at)
    : config_(config), host_(std::move(host)), started_at_(started_at) {}

std::string EventLog::Line(EventState state, const Source& source, Moment now) const {
  Json details;
  details["group_world_size"] = round_.has_value() ? Json(round_->num_nodes) : Json();
  details["entry_point"] = config_.program_name;
  std::optional<std::int32_t> rank;
  if (source.local_rank.has_value() && round_.has_value()) {
    rank = round_->first_rank + *source.local_rank;
    // torchrun writes each of these as a list of one.
    details["local_rank"] = {*source.local_rank};
    details["role_rank"] = {*rank};
    details["role_world_size"] = {round_->world_size};
    details["exit_code"] = Json::array({OrNull(source.exit_code)});
    details["worker_pid"] = Json::array({OrNull(source.pid)});
  }
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Json metadata;
  metadata["run_id"] = config_.job_id;
  metadata["global_rank"] = OrNull(rank);
  metadata["group_rank"] = round_.has_value() ? Json(round_->node_rank) : Json();
  metadata["worker_id"] = source.pid.has_value() ? Json(std::to_string(*source.pid)) : Json();
  metadata["role"] = config_.role;
  metadata["hostname"] = host_;
  metadata["state"] = NameOf(state);
  metadata["total_run_time"] =
      std::chrono::duration_cast<std::chrono::seconds>(now.instant - started_at_).count();
  metadata["rdzv_backend"] = config_.backend == RdzvBackend::kDynamic ? "c10d" : "static";
  metadata["raw_error"] = source.raw_error.empty() ? Json() : Json(std::string(source.raw_error));
  metadata["metadata"] = Text(details);
  metadata["agent_restarts"] = round_.has_value() ? round_->restart_count : 0;
  metadata["duration_ms"] =
      source.duration.has_value() ? Json(Milliseconds(*source.duration).count()) : Json();
  Json event;
  event["name"] = std::string("torchelastic.worker.status.") + NameOf(state);
  event["source"] = source.local_rank.has_value() ? "WORKER" : "AGENT";
  event["timestamp"] = now.wall_time_s;
  event["metadata"] = std::move(metadata);
  return Text(event) + "\n";
}

std::string EventLog::OfAgent(EventState state, std::optional<Duration> duration,
                              std::string_view raw_error, Moment now) const {
  return Line(state, Source{.duration = duration, .raw_error = raw_error}, now);
}

std::string EventLog::OfStart(std::int32_t local_rank, Moment now) const {
  return Line(EventState::kStart, Source{.local_rank = local_rank}, now);
}

std::string EventLog::OfExit(EventState state, const WorkerExit& exit, Moment now) const {
  Source source{.local_rank = exit.local_rank, .raw_error = exit.error_text};
  if (exit.pid != 0) {
    source.pid = exit.pid;
  }
  if (state != EventState::kTerminated) {
    source.exit_code = exit.term_signal != 0 ? -exit.term_signal : exit.exit_code;
  }
  if (state == EventState::kSucceeded) {
    source.raw_error = {};  // what a worker writes to stderr on a good way is no error
  }
  return Line(state, source, now);
}

}  // namespace ddl
