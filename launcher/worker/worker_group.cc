// Ties the supervisor (who lives), the log pump (what they say) and the round's
// workers together. The group is idle when the supervisor has said that nobody
// is left and every exit has been reported. Nothing here waits: every answer
// that may not come has an instant at which it is given up.
#include "launcher/worker/worker_group.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"
#include "launcher/binding/cpu_list.h"
#include "launcher/descriptor_limit.h"
#include "launcher/logs/log_files.h"
#include "launcher/logs/worker_streams.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/supervisor.h"
#include "launcher/process/tree_killer.h"
#include "launcher/worker/framework_env.h"
#include "launcher/worker/round_workers.h"
#include "launcher/worker/start_error.h"
#include "launcher/worker/worker_env.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxLeftNamed = 16;

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
  void TakeAllGone(const SupervisorEvent& event);
  void PrintLeftBehind();
  void OnTime(Instant now);
  bool FinishLost(Instant now);
  void FinishRound();
  void NoteSupervisor(const absl::Status& status);
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
  RoundWorkers workers;
  Instant lease_until = Instant::max();
  bool temporary_known = false;  // the supervisor will remove it

  WorkerId last_id = kEveryWorker;
  WorkerId last_ticket = 0;

  // Of the round.
  bool busy = false;  // from Start until nobody is left
  bool stopping = false;
  bool kill_sent = false;
  bool none_left = false;
  bool lease_passed = false;
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
      files(config),
      workers(pump, timeouts.output) {
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
  request.cpus = PlaceOf(config, local_rank).cpus;
  request.stdin_fd = local_rank == 0 && stdin_is_ours ? STDIN_FILENO : null.get();
  request.stdout_fd = out.write_end.get();
  request.stderr_fd = err.write_end.get();
  DDL_RETURN_IF_ERROR(supervisor->Spawn(request));

  WorkerExit exit;
  exit.local_rank = local_rank;
  exit.rank = round.first_rank + local_rank;
  workers.Add(request.worker, exit, worker_files.error_file, !files.kept_directory().empty());
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
  DDL_RETURN_IF_ERROR(EnsureDescriptors(
      {.nproc = round.nproc, .worker_ports = NeedsWorkerPorts(config.frameworks)}));
  stopping = kill_sent = none_left = lease_passed = false;
  workers.Begin();
  absl::Status started = SpawnAll(round);
  busy = started.ok() || workers.any_alive();
  if (supervisor->gone()) {
    NoteSupervisor(started);
  }
  const Instant now = MonotonicNow();
  if (started.ok()) {
    start_by = now + timeouts.start;
  } else if (busy) {
    workers.DropReports();  // but for the status
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
      workers.TakeSpawned(event);
      break;
    case SupervisorEventType::kSpawnFailed:
      workers.TakeSpawnFailed(event.worker, StartError(config, event));
      break;
    case SupervisorEventType::kExited:
      if (workers.TakeExit(event, now) && !workers.any_alive() && event.none_left != 0 &&
          !kill_sent) {
        none_left = true;
      }
      break;
    case SupervisorEventType::kLeftBehind:
      left_behind.push_back(LeftBehindText(event.pid, static_cast<char>(event.status)));
      workers.TakeLeftBehind(event, left_behind.back());
      break;
    case SupervisorEventType::kAllGone:
      TakeAllGone(event);
      break;
    case SupervisorEventType::kLeasePassed:
      lease_passed = busy;
      break;
  }
  if (!workers.any_starting()) {
    start_by.reset();
  }
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

// What is due by now.
void WorkerGroup::Impl::OnTime(Instant now) {
  if (start_by.has_value() && now >= *start_by) {
    start_by.reset();
    const auto start_s = std::chrono::duration_cast<std::chrono::seconds>(timeouts.start).count();
    workers.TakeStartTimeout(
        absl::DeadlineExceededError("starting " + config.program_name + " takes longer than " +
                                    std::to_string(start_s) + " s; does its file system hang?"));
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
  if (!files.temporary_directory().empty()) {  // the supervisor can remove it no more
    std::error_code ignored;
    std::filesystem::remove_all(files.temporary_directory(), ignored);
  }
  return true;
}

void WorkerGroup::Impl::FinishRound() {
  pump.CloseAll();
  workers.Begin();
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
  Earlier(first, workers.deadline());
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

void WorkerGroup::SetLease(Instant until) {
  if (std::exchange(impl_->lease_until, until) != until) {
    impl_->NoteSupervisor(impl_->supervisor->SetLease(until));
  }
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
    return impl.workers.TakeReports();
  }
  impl.workers.CollectReports(now);
  if (impl.busy && !impl.workers.any_alive() && !impl.none_left) {
    impl.KillAll(now);  // what the workers left behind
  }
  if (impl.busy && impl.none_left && !impl.workers.any_to_report()) {
    impl.FinishRound();
  }
  return impl.workers.TakeReports();
}

bool WorkerGroup::lease_passed() const {
  return impl_->lease_passed;
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
