// Ties the supervisor (who lives), the log pump (what they say) and the round's
// state together. A worker goes kStarting -> kRunning -> kExited (its output is
// being read) -> reported; the group is idle when the supervisor has said that
// nobody is left and every exit has been reported. Nothing here waits: every
// answer that may not come has an instant at which it is given up.
#include "launcher/worker/worker_group.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"
#include "launcher/exit_code.h"
#include "launcher/worker/log_files.h"
#include "launcher/worker/process_tree.h"
#include "launcher/worker/start_error.h"
#include "launcher/worker/supervisor.h"
#include "launcher/worker/text.h"
#include "launcher/worker/tree_killer.h"
#include "launcher/worker/worker_env.h"
#include "launcher/worker/worker_streams.h"

namespace ddl {
namespace {

constexpr std::size_t kErrorLines = 20;
constexpr std::size_t kMaxLeftNamed = 16;

enum class WorkerState : std::uint8_t { kStarting, kRunning, kExited };

struct Worker {
  WorkerState state = WorkerState::kStarting;
  WorkerExit exit;         // filled in when it has exited
  std::string error_file;  // where it would be
  Instant report_by{};     // kExited: with its output or without
};

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

void Earlier(std::optional<Instant>& first, std::optional<Instant> other) {
  if (other.has_value() && (!first.has_value() || *other < *first)) {
    first = other;
  }
}

// The state of an epoll event's descriptor needs no telling apart: OnReady
// looks at both sources anyway.
void WatchReadable(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  DDL_CHECK(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

// Reading a terminal from the background would take the shell's input away;
// the workers' own session would not even be stopped for it.
bool StdinIsOurs() {
  if (::isatty(STDIN_FILENO) == 0) {
    return true;
  }
  return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

}  // namespace

struct WorkerGroup::Impl {
  Impl(LaunchConfig launch_config, std::unique_ptr<Supervisor> owned_supervisor,
       const ConsoleOptions& console, const GroupTimeouts& group_timeouts);

  absl::Status Start(const RoundInfo& round);
  absl::Status SpawnAll(const RoundInfo& round);
  absl::Status SpawnOne(const RoundInfo& round, std::int32_t local_rank, bool stdin_is_ours,
                        std::int32_t usable_cpus);

  void KillAll(Instant now);
  void TakeEvents(Instant now);
  void Take(const SupervisorEvent& event, Instant now);
  void TakeSpawned(const SupervisorEvent& event);
  void TakeSpawnFailed(const SupervisorEvent& event);
  void TakeExit(const SupervisorEvent& event, Instant now);
  void TakeLeftBehind(const SupervisorEvent& event);
  void TakeAllGone(const SupervisorEvent& event);
  void ReportStartFailure(WorkerId id, const absl::Status& status);
  void PrintLeftBehind();
  void OnTime(Instant now);
  void CollectReports(Instant now);
  void FillFailure(Worker& worker, const DrainedWorker& drained) const;
  bool FinishLost(Instant now);
  void FinishRound();
  void NoteSupervisor(const absl::Status& status);
  [[nodiscard]] bool AnyStarting() const;
  [[nodiscard]] std::optional<Instant> FirstDeadline() const;

  const LaunchConfig config;
  const GroupTimeouts timeouts;
  const std::unique_ptr<Supervisor> supervisor;
  const std::vector<std::string> environment = OwnEnvironment();
  const UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  // The log pump has something, or we have it already.
  const UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  const UniqueFd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  LogPump pump;
  LogFiles files;
  bool temporary_known = false;  // the supervisor will remove it

  WorkerId last_id = kEveryWorker;
  WorkerId last_ticket = 0;

  // Of the round.
  std::map<WorkerId, Worker> workers;  // until reported
  std::set<WorkerId> alive;            // asked for, and their end not told yet
  std::deque<WorkerId> ended;          // in that order
  std::vector<WorkerExit> reports;     // for the next OnReady
  bool busy = false;                   // from Start until nobody is left
  bool start_failed = false;           // and told
  bool stopping = false;
  bool kill_sent = false;
  bool none_left = false;
  std::vector<std::string> left_behind;  // to be told
  std::optional<Instant> start_by;       // all programs run
  std::optional<Instant> kill_at;
  std::optional<Instant> answer_by;  // to the kill, from the supervisor

  std::optional<absl::Status> lost;  // the supervisor is gone; to be told by OnReady
  bool lost_seen = false;
};

WorkerGroup::Impl::Impl(LaunchConfig launch_config, std::unique_ptr<Supervisor> owned_supervisor,
                        const ConsoleOptions& console, const GroupTimeouts& group_timeouts)
    : config(std::move(launch_config)),
      timeouts(group_timeouts),
      supervisor(std::move(owned_supervisor)),
      pump(console, wake.get()),
      files(config) {
  WatchReadable(epoll.get(), supervisor->poll_fd());
  WatchReadable(epoll.get(), wake.get());
}

absl::Status WorkerGroup::Impl::SpawnOne(const RoundInfo& round, std::int32_t local_rank,
                                         bool stdin_is_ours, std::int32_t usable_cpus) {
  DDL_ASSIGN_OR_RETURN(WorkerFiles worker_files, files.Open(local_rank));
  DDL_ASSIGN_OR_RETURN(OutputPipe out, MakeOutputPipe());
  DDL_ASSIGN_OR_RETURN(OutputPipe err, MakeOutputPipe());

  SpawnRequest request;
  request.worker = ++last_id;
  request.argv = config.argv;
  request.env = WorkerEnvironment(environment, config, round, local_rank, worker_files.error_file,
                                  usable_cpus);
  request.cwd = config.cwd;
  request.stdin_fd = local_rank == 0 && stdin_is_ours ? STDIN_FILENO : null.get();
  request.stdout_fd = out.write_end.get();
  request.stderr_fd = err.write_end.get();
  DDL_RETURN_IF_ERROR(supervisor->Spawn(request));

  Worker& worker = workers[request.worker];
  worker.error_file = worker_files.error_file;
  worker.exit.local_rank = local_rank;
  worker.exit.rank = round.first_rank + local_rank;
  alive.insert(request.worker);
  pump.Add(request.worker, StreamsOf(config, round, local_rank, worker_files, out, err));
  return absl::OkStatus();
}

absl::Status WorkerGroup::Impl::SpawnAll(const RoundInfo& round) {
  DDL_RETURN_IF_ERROR(files.StartAttempt(round.job_id, round.restart_count, round.round));
  if (!files.temporary_directory().empty() && !std::exchange(temporary_known, true)) {
    DDL_RETURN_IF_ERROR(supervisor->RemoveAtEnd(files.temporary_directory()));
  }
  const bool stdin_is_ours = StdinIsOurs();
  const std::int32_t usable_cpus = UsableCpus();
  absl::Status spawned;
  for (std::int32_t rank = 0; rank < round.nproc && spawned.ok(); ++rank) {
    spawned = SpawnOne(round, rank, stdin_is_ours, usable_cpus);
  }
  for (std::string& warning : files.TakeWarnings()) {
    pump.Print("ddlaunch: " + warning);
  }
  return spawned;
}

absl::Status WorkerGroup::Impl::Start(const RoundInfo& round) {
  DDL_CHECK(!busy);
  if (lost.has_value()) {
    return *lost;
  }
  DDL_RETURN_IF_ERROR(EnsureOpenFiles(round.nproc));
  start_failed = stopping = kill_sent = none_left = false;
  absl::Status started = SpawnAll(round);
  busy = started.ok() || !alive.empty();
  if (supervisor->gone()) {
    NoteSupervisor(started);
  }
  const Instant now = MonotonicNow();
  if (started.ok()) {
    start_by = now + timeouts.start;
  } else if (busy) {
    workers.clear();  // nothing of it is reported but the status
    KillAll(now);
  }
  return started;
}

void WorkerGroup::Impl::KillAll(Instant now) {
  kill_at.reset();
  start_by.reset();
  if (!busy || std::exchange(kill_sent, true)) {
    return;
  }
  answer_by = now + timeouts.kill + timeouts.supervisor;
  NoteSupervisor(supervisor->KillAll(++last_ticket, timeouts.kill));
}

void WorkerGroup::Impl::TakeEvents(Instant now) {
  for (;;) {
    const auto event = supervisor->Next();
    if (!event.ok()) {
      NoteSupervisor(event.status());
      return;
    }
    if (!event->has_value()) {
      return;
    }
    Take(**event, now);
  }
}

// What is said of a worker of an earlier round, which was left behind, finds no
// such worker.
void WorkerGroup::Impl::Take(const SupervisorEvent& event, Instant now) {
  switch (event.type) {
    case SupervisorEventType::kSpawned:
      TakeSpawned(event);
      return;
    case SupervisorEventType::kSpawnFailed:
      TakeSpawnFailed(event);
      return;
    case SupervisorEventType::kExited:
      TakeExit(event, now);
      return;
    case SupervisorEventType::kLeftBehind:
      TakeLeftBehind(event);
      return;
    case SupervisorEventType::kAllGone:
      TakeAllGone(event);
      return;
  }
}

void WorkerGroup::Impl::TakeSpawned(const SupervisorEvent& event) {
  const auto it = workers.find(event.worker);
  if (it != workers.end() && it->second.state == WorkerState::kStarting) {
    it->second.state = WorkerState::kRunning;
    it->second.exit.pid = event.pid;
  }
  if (start_by.has_value() && !AnyStarting()) {
    start_by.reset();
  }
}

void WorkerGroup::Impl::TakeSpawnFailed(const SupervisorEvent& event) {
  if (alive.erase(event.worker) != 0) {
    ReportStartFailure(event.worker, StartError(config, event));
  }
}

// The first one's alone: what keeps one from starting keeps them all.
void WorkerGroup::Impl::ReportStartFailure(WorkerId id, const absl::Status& status) {
  const auto it = workers.find(id);
  if (it == workers.end()) {
    return;
  }
  if (!std::exchange(start_failed, true)) {
    WorkerExit& exit = it->second.exit;
    exit.exit_code = StartExitCode(status);
    exit.wall_time_s = WallTimeS();
    exit.error_text = CleanText(std::string(status.message()), limits::kMaxErrorTextBytes);
    reports.push_back(std::move(exit));
  }
  workers.erase(it);
  start_by.reset();
}

void WorkerGroup::Impl::TakeExit(const SupervisorEvent& event, Instant now) {
  if (alive.erase(event.worker) == 0) {
    return;
  }
  if (alive.empty() && event.none_left != 0 && !kill_sent) {
    none_left = true;
  }
  const auto it = workers.find(event.worker);
  if (it == workers.end()) {
    return;  // its start was given up, or all of it
  }
  Worker& worker = it->second;
  worker.state = WorkerState::kExited;
  worker.exit.pid = event.pid;
  worker.exit.wall_time_s = event.wall_time_s;
  if (WIFSIGNALED(event.status)) {
    worker.exit.term_signal = WTERMSIG(event.status);
  } else {
    worker.exit.exit_code = WEXITSTATUS(event.status);
  }
  worker.report_by = now + timeouts.output;
  ended.push_back(event.worker);
  // Answered through `wake`.
  pump.Drain(event.worker, worker.exit.ok() ? "" : worker.error_file);
}

void WorkerGroup::Impl::TakeLeftBehind(const SupervisorEvent& event) {
  std::string text = LeftBehindText(event.pid, static_cast<char>(event.status));
  const auto it = workers.find(event.worker);
  if (alive.erase(event.worker) != 0 && it != workers.end()) {
    WorkerExit& exit = it->second.exit;
    exit.pid = event.pid;
    exit.term_signal = SIGKILL;
    exit.wall_time_s = WallTimeS();
    exit.error_text = text;
    reports.push_back(std::move(exit));
    workers.erase(it);
  }
  left_behind.push_back(std::move(text));
}

void WorkerGroup::Impl::TakeAllGone(const SupervisorEvent& event) {
  if (!busy || !kill_sent || event.worker != last_ticket) {
    return;
  }
  none_left = true;
  answer_by.reset();
  PrintLeftBehind();
}

void WorkerGroup::Impl::PrintLeftBehind() {
  const std::size_t count = left_behind.size();
  if (count > kMaxLeftNamed) {
    left_behind.resize(kMaxLeftNamed);
    left_behind.push_back("so are " + std::to_string(count - kMaxLeftNamed) + " more");
  }
  for (const std::string& text : left_behind) {
    pump.Print("ddlaunch: " + text);
  }
  left_behind.clear();
}

bool WorkerGroup::Impl::AnyStarting() const {
  for (const auto& [id, worker] : workers) {
    if (worker.state == WorkerState::kStarting) {
      return true;
    }
  }
  return false;
}

// What is due by now.
void WorkerGroup::Impl::OnTime(Instant now) {
  if (start_by.has_value() && now >= *start_by) {
    start_by.reset();
    for (const auto& [id, worker] : workers) {
      if (worker.state == WorkerState::kStarting) {
        ReportStartFailure(
            id, absl::DeadlineExceededError(
                    "starting " + config.program_name + " takes longer than " +
                    std::to_string(
                        std::chrono::duration_cast<std::chrono::seconds>(timeouts.start).count()) +
                    " s; does its file system hang?"));
        break;
      }
    }
  }
  if (kill_at.has_value() && now >= *kill_at) {
    KillAll(now);
  }
  if (answer_by.has_value() && now >= *answer_by) {
    answer_by.reset();
    supervisor->GiveUp();
    TakeEvents(now);
  }
}

void WorkerGroup::Impl::FillFailure(Worker& worker, const DrainedWorker& drained) const {
  WorkerExit& exit = worker.exit;
  exit.error_text = drained.error_text;
  if (exit.error_text.empty()) {
    exit.error_text =
        CleanText(LastLines(drained.stderr_tail, kErrorLines), limits::kMaxErrorTextBytes);
  } else if (!files.kept_directory().empty()) {
    exit.error_file = CleanText(worker.error_file, limits::kMaxTextBytes);
  }
}

// The workers whose output is read, and those for which that takes too long.
void WorkerGroup::Impl::CollectReports(Instant now) {
  for (const DrainedWorker& drained : pump.TakeDrained()) {
    const auto it = workers.find(drained.worker);
    if (it == workers.end()) {
      continue;
    }
    if (!it->second.exit.ok()) {
      FillFailure(it->second, drained);
    }
    reports.push_back(std::move(it->second.exit));
    workers.erase(it);
  }
  while (!ended.empty()) {
    const auto it = workers.find(ended.front());
    if (it != workers.end()) {
      if (now < it->second.report_by) {
        return;
      }
      reports.push_back(std::move(it->second.exit));
      workers.erase(it);
    }
    ended.pop_front();
  }
}

// True: nobody is left, or those who are do not die.
bool WorkerGroup::Impl::FinishLost(Instant now) {
  if (!std::exchange(lost_seen, true)) {
    // Readable for ever from now on, and nothing to be had from it.
    ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, supervisor->poll_fd(), nullptr);
    supervisor->GiveUp();
  }
  const TreeKiller::Result result = supervisor->KillRest(now);
  if (result == TreeKiller::Result::kGoesOn) {
    return false;
  }
  if (result == TreeKiller::Result::kGivenUp) {
    for (const pid_t pid : supervisor->rest().just_left()) {
      left_behind.push_back(LeftBehindText(pid, StateOf(pid)));
    }
  }
  PrintLeftBehind();
  FinishRound();
  return true;
}

void WorkerGroup::Impl::FinishRound() {
  pump.CloseAll();
  workers.clear();
  alive.clear();
  ended.clear();
  busy = false;
  start_by.reset();
  kill_at.reset();
  answer_by.reset();
}

void WorkerGroup::Impl::NoteSupervisor(const absl::Status& status) {
  if (!status.ok() && !lost.has_value()) {
    lost = status;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake.get(), &one, sizeof(one));
  }
}

std::optional<Instant> WorkerGroup::Impl::FirstDeadline() const {
  std::optional<Instant> first;
  if (lost.has_value()) {
    if (supervisor->rest().active()) {
      first = supervisor->rest().next_look();
    }
    return first;
  }
  Earlier(first, start_by);
  Earlier(first, kill_at);
  Earlier(first, answer_by);
  Earlier(first, supervisor->deadline());
  for (const WorkerId id : ended) {
    const auto it = workers.find(id);
    if (it != workers.end()) {
      Earlier(first, it->second.report_by);
      break;
    }
  }
  return first;
}

WorkerGroup::WorkerGroup(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor,
                         const ConsoleOptions& console, const GroupTimeouts& timeouts)
    : impl_(std::make_unique<Impl>(config, std::move(supervisor), console, timeouts)) {}

WorkerGroup::~WorkerGroup() = default;

absl::Status WorkerGroup::Start(const RoundInfo& round) {
  return impl_->Start(round);
}

void WorkerGroup::Stop(Instant now) {
  Impl& impl = *impl_;
  if (!impl.busy || impl.kill_sent || std::exchange(impl.stopping, true)) {
    return;
  }
  impl.kill_at = now + impl.config.shutdown_timeout;
  impl.start_by.reset();
  impl.NoteSupervisor(impl.supervisor->Signal(kEveryWorker, SIGTERM));
}

void WorkerGroup::Kill() {
  impl_->KillAll(MonotonicNow());
}

void WorkerGroup::Forward(int signal) {
  impl_->NoteSupervisor(impl_->supervisor->Signal(kEveryWorker, signal));
}

absl::StatusOr<std::vector<WorkerExit>> WorkerGroup::OnReady(Instant now) {
  Impl& impl = *impl_;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(impl.wake.get(), &count, sizeof(count));
  if (!impl.lost.has_value()) {
    impl.TakeEvents(now);
    impl.OnTime(now);
  }
  if (impl.lost.has_value()) {
    if (impl.FinishLost(now)) {
      return *impl.lost;
    }
    return std::exchange(impl.reports, {});
  }
  impl.CollectReports(now);
  if (impl.busy && impl.alive.empty() && !impl.none_left) {
    impl.KillAll(now);  // what the workers left behind
  }
  if (impl.busy && impl.none_left && impl.workers.empty()) {
    impl.FinishRound();
  }
  return std::exchange(impl.reports, {});
}

bool WorkerGroup::idle() const {
  return !impl_->busy;
}

int WorkerGroup::poll_fd() const {
  return impl_->epoll.get();
}

std::optional<Instant> WorkerGroup::deadline() const {
  return impl_->FirstDeadline();
}

bool WorkerGroup::FlushConsole(Duration timeout) {
  return impl_->pump.Flush(timeout);
}

void WorkerGroup::Print(std::string lines) {
  impl_->pump.Print(std::move(lines));
}

std::string WorkerGroup::log_directory() const {
  return impl_->files.kept_directory();
}

}  // namespace ddl
