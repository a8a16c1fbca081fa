// A worker goes kStarting -> kRunning -> kExited (its output is being read) ->
// reported.
#include "launcher/worker/round_workers.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <utility>

#include "agent/base/limits.h"
#include "launcher/exit_code.h"
#include "launcher/failures/failure_hint.h"
#include "launcher/failures/stderr_words.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

std::int64_t WallTimeS() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

int StartExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kPermissionDenied:
      return kExitNotExecutable;
    default:
      return kExitFailure;
  }
}

}  // namespace

void RoundWorkers::Begin() {
  workers_.clear();
  alive_.clear();
  ended_.clear();
  start_failed_ = false;
  memory_ = ReadMemoryFacts();
}

void RoundWorkers::Add(WorkerId id, const WorkerExit& exit, std::string error_file,
                       bool error_file_kept) {
  Worker& worker = workers_[id];
  worker.exit = exit;
  worker.error_file = std::move(error_file);
  worker.error_file_kept = error_file_kept;
  worker.added_at = MonotonicNow();
  alive_.insert(id);
}

void RoundWorkers::DropReports() {
  workers_.clear();
}

void RoundWorkers::Report(Workers::iterator it) {
  reports_.push_back(std::move(it->second.exit));
  workers_.erase(it);
}

void RoundWorkers::TakeSpawned(const SupervisorEvent& event) {
  const auto it = workers_.find(event.worker);
  if (it != workers_.end() && it->second.state == State::kStarting) {
    it->second.state = State::kRunning;
    it->second.exit.pid = event.pid;
  }
}

void RoundWorkers::TakeSpawnFailed(WorkerId id, const absl::Status& status) {
  alive_.erase(id);
  const auto it = workers_.find(id);
  if (it == workers_.end()) {
    return;
  }
  if (std::exchange(start_failed_, true)) {
    workers_.erase(it);
    return;
  }
  WorkerExit& exit = it->second.exit;
  exit.exit_code = StartExitCode(status);
  exit.wall_time_s = WallTimeS();
  exit.ended_at = exit.failed_at = MonotonicNow();
  exit.error_text = CleanText(std::string(status.message()), limits::kMaxErrorTextBytes);
  Report(it);
}

void RoundWorkers::TakeStartTimeout(const absl::Status& status) {
  const auto late = std::find_if(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.state == State::kStarting;
  });
  if (late != workers_.end()) {
    const WorkerId id = late->first;
    TakeSpawnFailed(id, status);
    alive_.insert(id);  // until the supervisor says otherwise
  }
}

bool RoundWorkers::TakeExit(const SupervisorEvent& event, Instant now) {
  if (alive_.erase(event.worker) == 0) {
    return false;
  }
  const auto it = workers_.find(event.worker);
  if (it == workers_.end()) {
    return true;  // reported as one that did not start, or not to be reported
  }
  Worker& worker = it->second;
  worker.state = State::kExited;
  worker.exit.pid = event.pid;
  worker.exit.wall_time_s = event.wall_time_s;
  worker.exit.ended_at = Instant(Duration(event.ended_at_ns));
  worker.exit.failed_at = worker.exit.ended_at;
  if (WIFSIGNALED(event.status)) {
    worker.exit.term_signal = WTERMSIG(event.status);
  } else {
    worker.exit.exit_code = WEXITSTATUS(event.status);
  }
  worker.report_by = now + output_timeout_;
  ended_.push_back(event.worker);
  pump_.Drain(event.worker, worker.exit.ok() ? "" : worker.error_file);
  return true;
}

void RoundWorkers::TakeLeftBehind(const SupervisorEvent& event, const std::string& text) {
  const auto it = workers_.find(event.worker);
  if (alive_.erase(event.worker) == 0 || it == workers_.end()) {
    return;
  }
  WorkerExit& exit = it->second.exit;
  exit.pid = event.pid;
  exit.term_signal = SIGKILL;
  exit.wall_time_s = WallTimeS();
  exit.ended_at = exit.failed_at = MonotonicNow();
  exit.error_text = text;
  Report(it);
}

// The paths and texts go to other nodes, in messages of bounded size.
void RoundWorkers::AddHint(WorkerExit& exit) const {
  if (!exit.ok()) {
    exit.hint = FailureHint({exit.exit_code, exit.term_signal, exit.error_text}, memory_,
                            ReadMemoryFacts());
  }
}

void RoundWorkers::FillFailure(Worker& worker, const DrainedWorker& drained) {
  WorkerExit& exit = worker.exit;
  exit.error_text = drained.error_text;
  exit.stderr_at = drained.stderr_at;
  if (exit.error_text.empty()) {
    exit.error_text = CleanText(LastWords(drained.stderr_tail), limits::kMaxErrorTextBytes);
  } else {
    exit.error_path = worker.error_file;
    if (worker.error_file_kept) {
      exit.error_file = CleanText(worker.error_file, limits::kMaxTextBytes);
    }
    // Unless the clock was set meanwhile.
    if (drained.error_at >= worker.added_at && drained.error_at < exit.ended_at) {
      exit.failed_at = drained.error_at;
      exit.wall_time_s = drained.error_timestamp_s.value_or(exit.wall_time_s);
    }
  }
}

void RoundWorkers::CollectReports(Instant now) {
  for (const DrainedWorker& drained : pump_.TakeDrained()) {
    const auto it = workers_.find(drained.worker);
    if (it == workers_.end()) {
      continue;  // reported without its output
    }
    if (!it->second.exit.ok()) {
      FillFailure(it->second, drained);
    }
    AddHint(it->second.exit);
    Report(it);
  }
  for (; !ended_.empty(); ended_.pop_front()) {
    const auto it = workers_.find(ended_.front());
    if (it == workers_.end()) {
      continue;
    }
    if (now < it->second.report_by) {
      return;
    }
    AddHint(it->second.exit);
    Report(it);
  }
}

std::vector<WorkerExit> RoundWorkers::TakeReports() {
  return std::exchange(reports_, {});
}

bool RoundWorkers::any_starting() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.state == State::kStarting; });
}

std::optional<Instant> RoundWorkers::deadline() const {
  for (const WorkerId id : ended_) {
    const auto it = workers_.find(id);
    if (it != workers_.end()) {
      return it->second.report_by;
    }
  }
  return std::nullopt;
}

}  // namespace ddl
