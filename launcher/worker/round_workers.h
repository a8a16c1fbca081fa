// RoundWorkers: what is known of each worker of one round, from the request to
// start it until its exit has been reported. It turns the supervisor's events
// and the log pump's answers into WorkerExits, each worker at most one.
//
// Events of a worker that it does not know (of an earlier round, left behind)
// are nobody's and change nothing. Not thread safe; never waits.
#ifndef DDLAUNCH_LAUNCHER_WORKER_ROUND_WORKERS_H_
#define DDLAUNCH_LAUNCHER_WORKER_ROUND_WORKERS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/base/clock.h"
#include "launcher/failures/memory_facts.h"
#include "launcher/logs/log_pump.h"
#include "launcher/process/supervisor_protocol.h"
#include "launcher/worker/worker_group.h"

namespace ddl {

class RoundWorkers {
 public:
  // `pump` must outlive this. `output_timeout`: see GroupTimeouts::output.
  RoundWorkers(LogPump& pump, Duration output_timeout)
      : pump_(pump), output_timeout_(output_timeout) {}

  // A new round; what was to be reported of the one before, still is.
  void Begin();
  // Asked for. `exit` says which worker it is. `error_file` is where it may write
  // one, named in reports only if it is kept.
  void Add(WorkerId id, const WorkerExit& exit, std::string error_file, bool error_file_kept);
  // Reports nothing of those that are here now; they still count as alive.
  void DropReports();

  void TakeSpawned(const SupervisorEvent& event);
  // The round's first one is reported; what keeps one from starting keeps them
  // all.
  void TakeSpawnFailed(WorkerId id, const absl::Status& status);
  // The same for the first one that has not started yet.
  void TakeStartTimeout(const absl::Status& status);
  // False: no such worker.
  bool TakeExit(const SupervisorEvent& event, Instant now);
  // Reported as killed, with `text`.
  void TakeLeftBehind(const SupervisorEvent& event, const std::string& text);

  // Those whose output is read, and those for which that takes too long.
  void CollectReports(Instant now);
  // In the order in which they ended.
  [[nodiscard]] std::vector<WorkerExit> TakeReports();

  [[nodiscard]] bool any_alive() const { return !alive_.empty(); }
  [[nodiscard]] bool any_starting() const;
  [[nodiscard]] bool any_to_report() const { return !workers_.empty(); }
  // When CollectReports has to be called at the latest.
  [[nodiscard]] std::optional<Instant> deadline() const;

 private:
  enum class State : std::uint8_t { kStarting, kRunning, kExited };
  struct Worker {
    State state = State::kStarting;
    WorkerExit exit;
    std::string error_file;
    bool error_file_kept = false;
    Instant added_at{};
    Instant report_by{};  // kExited: with its output or without
  };
  using Workers = std::map<WorkerId, Worker>;

  static void FillFailure(Worker& worker, const DrainedWorker& drained);
  void AddHint(WorkerExit& exit) const;
  void Report(Workers::iterator it);

  LogPump& pump_;
  const Duration output_timeout_;
  Workers workers_;             // until reported
  std::set<WorkerId> alive_;    // asked for, and their end not told yet
  std::deque<WorkerId> ended_;  // in that order
  std::vector<WorkerExit> reports_;
  bool start_failed_ = false;  // and reported
  MemoryFacts memory_;         // at the round's start
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_ROUND_WORKERS_H_
