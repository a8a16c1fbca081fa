// Ties the supervisor (who lives), the log pump (what they say) and the round's
// state together. A worker goes kRunning -> kExited (its output is being read)
// -> reported; the group is idle when the supervisor has said that nobody is
// left and every exit has been reported.
#include "launcher/worker/worker_group.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <string_view>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"
#include "launcher/worker/errno_text.h"
#include "launcher/worker/error_file.h"
#include "launcher/worker/log_files.h"
#include "launcher/worker/start_error.h"
#include "launcher/worker/supervisor.h"
#include "launcher/worker/text.h"
#include "launcher/worker/worker_env.h"

namespace ddl {
namespace {

constexpr std::size_t kErrorLines = 20;
// How long programs may take to be started, on a file server that hangs too.
constexpr auto kStartTimeout = std::chrono::seconds(60);
// How long a group that could not be started may take to die.
constexpr auto kAbortTimeout = std::chrono::seconds(5);

struct Worker {
  std::int32_t local_rank = 0;
  WorkerExit exit;         // filled in when it has exited
  std::string error_file;  // where it would be
};

// The state of an epoll event's descriptor needs no telling apart: OnReady
// looks at both sources anyway.
void WatchReadable(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  DDL_CHECK(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

struct Pipe {
  UniqueFd read_end;   // non-blocking: ours
  UniqueFd write_end;  // blocking: the worker's
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(ErrnoText("cannot open a worker's output pipe", errno));
  }
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  ::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

// Reading a terminal from the background would take the shell's input away;
// the workers' own session would not even be stopped for it.
bool StdinIsOurs() {
  if (::isatty(STDIN_FILENO) == 0) {
    return true;
  }
  return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string HostName() {
  constexpr std::size_t kMaxHostName = 256;
  std::array<char, kMaxHostName> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

struct WorkerGroup::Impl {
  Impl(LaunchConfig launch_config, std::unique_ptr<Supervisor> owned_supervisor,
       const ConsoleOptions& console);

  absl::Status Start(const RoundInfo& round);
  absl::Status SpawnAll(const RoundInfo& round);
  absl::Status SpawnOne(const RoundInfo& round, std::int32_t local_rank, bool stdin_is_ours,
                        std::int32_t usable_cpus);
  [[nodiscard]] std::vector<StreamSpec> StreamsOf(const RoundInfo& round, std::int32_t local_rank,
                                                  WorkerFiles& files, Pipe& out, Pipe& err) const;
  [[nodiscard]] std::string PrefixOf(const RoundInfo& round, std::int32_t local_rank) const;
  absl::Status AwaitSpawned();
  void Abort();

  void KillAll();
  void Take(const SupervisorEvent& event);
  void TakeExit(const SupervisorEvent& event);
  std::vector<WorkerExit> Report();
  void FinishRound();
  void WakeIfBuffered() const;
  void NoteSupervisor(const absl::Status& status);

  const LaunchConfig config;
  const std::unique_ptr<Supervisor> supervisor;
  const std::vector<std::string> environment = OwnEnvironment();
  const UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  // The log pump has something, or we have it already.
  const UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  const UniqueFd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  LogPump pump;
  LogFiles files;
  bool temporary_known = false;  // the supervisor will remove it

  std::map<WorkerId, Worker> workers;  // of the round, until reported
  WorkerId last_id = kEveryWorker;
  std::int32_t live = 0;  // asked for and not exited
  bool busy = false;      // from Start until nobody is left
  bool stopping = false;
  bool kill_sent = false;
  bool none_left = false;
  std::int32_t kills_unanswered = 0;
  std::optional<Instant> kill_at;
  std::optional<absl::Status> lost;  // the supervisor is gone; to be told by OnReady
};

WorkerGroup::Impl::Impl(LaunchConfig launch_config, std::unique_ptr<Supervisor> owned_supervisor,
                        const ConsoleOptions& console)
    : config(std::move(launch_config)),
      supervisor(std::move(owned_supervisor)),
      pump(console, wake.get()),
      files(config) {
  WatchReadable(epoll.get(), supervisor->poll_fd());
  WatchReadable(epoll.get(), wake.get());
}

std::string WorkerGroup::Impl::PrefixOf(const RoundInfo& round, std::int32_t local_rank) const {
  if (config.log_line_prefix_template.empty()) {
    return round.world_size == 1 ? "" : "[" + config.role + std::to_string(local_rank) + "]:";
  }
  std::string prefix = config.log_line_prefix_template;
  ReplaceAll(prefix, "${role_name}", config.role);
  ReplaceAll(prefix, "${local_rank}", std::to_string(local_rank));
  ReplaceAll(prefix, "${rank}", std::to_string(round.first_rank + local_rank));
  ReplaceAll(prefix, "${hostname}", HostName());
  return prefix;
}

std::vector<StreamSpec> WorkerGroup::Impl::StreamsOf(const RoundInfo& round,
                                                     std::int32_t local_rank,
                                                     WorkerFiles& worker_files, Pipe& out,
                                                     Pipe& err) const {
  const std::string prefix = PrefixOf(round, local_rank);
  const bool shown = config.local_ranks_filter.empty() ||
                     config.local_ranks_filter.find(local_rank) != config.local_ranks_filter.end();
  // A tee wins over a redirect of the same stream, as in torchrun.
  const unsigned file_only =
      unsigned{config.redirects.of(local_rank)} & ~unsigned{config.tee.of(local_rank)};
  std::vector<StreamSpec> streams;
  for (const bool is_stderr : {false, true}) {
    StreamSpec spec;
    spec.pipe = std::move(is_stderr ? err.read_end : out.read_end);
    spec.is_stderr = is_stderr;
    spec.on_console = shown && (file_only & (is_stderr ? kStderr : kStdout)) == 0;
    spec.prefix = prefix;
    spec.raw = prefix.empty();
    spec.file = std::move(is_stderr ? worker_files.stderr_file : worker_files.stdout_file);
    spec.file_path = is_stderr ? worker_files.stderr_path : worker_files.stdout_path;
    if (!spec.file.valid()) {
      spec.file_path.clear();
    }
    streams.push_back(std::move(spec));
  }
  return streams;
}

absl::Status WorkerGroup::Impl::SpawnOne(const RoundInfo& round, std::int32_t local_rank,
                                         bool stdin_is_ours, std::int32_t usable_cpus) {
  DDL_ASSIGN_OR_RETURN(WorkerFiles worker_files, files.Open(local_rank));
  DDL_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  DDL_ASSIGN_OR_RETURN(Pipe err, MakePipe());

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
  worker.local_rank = local_rank;
  worker.error_file = worker_files.error_file;
  worker.exit.local_rank = local_rank;
  worker.exit.rank = round.first_rank + local_rank;
  ++live;
  pump.Add(request.worker, StreamsOf(round, local_rank, worker_files, out, err));
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
  DDL_RETURN_IF_ERROR(spawned);
  return AwaitSpawned();
}

// Until the program of each worker runs. Exits of the quickest may come in
// between.
absl::Status WorkerGroup::Impl::AwaitSpawned() {
  const Instant deadline = MonotonicNow() + kStartTimeout;
  std::size_t awaited = workers.size();
  while (awaited > 0) {
    DDL_ASSIGN_OR_RETURN(const std::optional<SupervisorEvent> event, supervisor->Wait(deadline));
    if (!event.has_value()) {
      return absl::DeadlineExceededError("starting " + config.program_name + " takes longer than " +
                                         std::to_string(kStartTimeout.count()) +
                                         " s; does its file system hang?");
    }
    if (event->type == SupervisorEventType::kSpawnFailed) {
      return StartError(config, *event);
    }
    awaited -= event->type == SupervisorEventType::kSpawned ? 1 : 0;
    Take(*event);
  }
  return absl::OkStatus();
}

absl::Status WorkerGroup::Impl::Start(const RoundInfo& round) {
  DDL_CHECK(!busy);
  DDL_RETURN_IF_ERROR(EnsureOpenFiles(round.nproc));
  busy = true;
  stopping = kill_sent = none_left = false;
  live = 0;
  absl::Status started = SpawnAll(round);
  if (!started.ok()) {
    Abort();
    return started;
  }
  WakeIfBuffered();
  return absl::OkStatus();
}

// Nobody of a group that could not be started whole stays; nothing of it is
// reported.
void WorkerGroup::Impl::Abort() {
  const Instant deadline = MonotonicNow() + kAbortTimeout;
  KillAll();
  workers.clear();
  while (kills_unanswered > 0) {
    const auto event = supervisor->Wait(deadline);
    if (!event.ok() || !event->has_value()) {
      break;
    }
    Take(**event);
  }
  FinishRound();
}

void WorkerGroup::Impl::KillAll() {
  if (busy && !kill_sent) {
    kill_sent = true;
    const absl::Status asked = supervisor->KillAll();
    kills_unanswered += asked.ok() ? 1 : 0;
    NoteSupervisor(asked);
  }
  kill_at.reset();
}

void WorkerGroup::Impl::Take(const SupervisorEvent& event) {
  switch (event.type) {
    case SupervisorEventType::kExited:
      TakeExit(event);
      return;
    case SupervisorEventType::kAllGone:
      // The last answer counts: an earlier one may be of the round before.
      --kills_unanswered;
      none_left = kills_unanswered == 0;
      return;
    case SupervisorEventType::kSpawned:
    case SupervisorEventType::kSpawnFailed:  // of a start that was given up
      return;
  }
}

void WorkerGroup::Impl::TakeExit(const SupervisorEvent& event) {
  const auto it = workers.find(event.worker);
  if (it == workers.end()) {
    return;
  }
  Worker& worker = it->second;
  worker.exit.pid = event.pid;
  worker.exit.wall_time_s = event.wall_time_s;
  if (WIFSIGNALED(event.status)) {
    worker.exit.term_signal = WTERMSIG(event.status);
  } else {
    worker.exit.exit_code = WEXITSTATUS(event.status);
  }
  --live;
  pump.Drain(event.worker);  // answered through `wake`
  if (live == 0 && event.none_left != 0 && kills_unanswered == 0) {
    none_left = true;
  }
}

// The workers whose output is read.
std::vector<WorkerExit> WorkerGroup::Impl::Report() {
  std::vector<WorkerExit> exits;
  for (const DrainedWorker& drained : pump.TakeDrained()) {
    const auto it = workers.find(drained.worker);
    if (it == workers.end()) {
      continue;
    }
    WorkerExit& exit = it->second.exit;
    if (!exit.ok()) {
      exit.error_text = ReadErrorFile(it->second.error_file);
      if (!exit.error_text.empty() && !files.kept_directory().empty()) {
        exit.error_file = it->second.error_file;
      }
      if (exit.error_text.empty()) {
        exit.error_text =
            CleanText(LastLines(drained.stderr_tail, kErrorLines), limits::kMaxErrorTextBytes);
      }
    }
    exits.push_back(std::move(exit));
    workers.erase(it);
  }
  return exits;
}

void WorkerGroup::Impl::FinishRound() {
  pump.CloseAll();
  busy = false;
  kill_at.reset();
}

// What was read while a request waited would wake nobody.
void WorkerGroup::Impl::WakeIfBuffered() const {
  if (supervisor->has_buffered_events() || lost.has_value()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake.get(), &one, sizeof(one));
  }
}

void WorkerGroup::Impl::NoteSupervisor(const absl::Status& status) {
  if (!status.ok() && !lost.has_value()) {
    lost = status;
  }
  WakeIfBuffered();
}

WorkerGroup::WorkerGroup(const LaunchConfig& config, std::unique_ptr<Supervisor> supervisor,
                         const ConsoleOptions& console)
    : impl_(std::make_unique<Impl>(config, std::move(supervisor), console)) {}

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
  impl.NoteSupervisor(impl.supervisor->Signal(kEveryWorker, SIGTERM));
}

void WorkerGroup::Kill() {
  impl_->KillAll();
}

void WorkerGroup::Forward(int signal) {
  impl_->NoteSupervisor(impl_->supervisor->Signal(kEveryWorker, signal));
}

absl::StatusOr<std::vector<WorkerExit>> WorkerGroup::OnReady(Instant now) {
  Impl& impl = *impl_;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(impl.wake.get(), &count, sizeof(count));
  for (;;) {
    const auto event = impl.supervisor->Next();
    if (!event.ok()) {
      impl.NoteSupervisor(event.status());
      break;
    }
    if (!event->has_value()) {
      break;
    }
    impl.Take(**event);
  }
  if (impl.lost.has_value()) {
    // Readable for ever from now on, and nothing to be had from it.
    ::epoll_ctl(impl.epoll.get(), EPOLL_CTL_DEL, impl.supervisor->poll_fd(), nullptr);
    impl.workers.clear();
    impl.FinishRound();
    return *impl.lost;
  }
  if (impl.kill_at.has_value() && now >= *impl.kill_at) {
    impl.KillAll();
  }
  std::vector<WorkerExit> exits = impl.Report();
  if (impl.busy && impl.live == 0 && !impl.none_left) {
    impl.KillAll();  // what the workers left behind
  }
  if (impl.busy && impl.none_left && impl.workers.empty()) {
    impl.FinishRound();
  }
  return exits;
}

bool WorkerGroup::idle() const {
  return !impl_->busy;
}

int WorkerGroup::poll_fd() const {
  return impl_->epoll.get();
}

std::optional<Instant> WorkerGroup::deadline() const {
  return impl_->kill_at;
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
