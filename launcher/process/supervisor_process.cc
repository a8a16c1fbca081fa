// Exits come from pidfds, in the order in which the kernel woke us: the order
// in which the workers died, which waitpid(-1) does not keep and which decides
// who is named as the root cause. SIGCHLD is for the orphans that this process
// inherits as the subreaper, and for kernels without pidfds.
#include "launcher/process/supervisor_process.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/spawn.h"
#include "launcher/process/spawn_payload.h"
#include "launcher/process/supervisor_protocol.h"
#include "launcher/process/supervisor_setup.h"
#include "launcher/process/tree_killer.h"

namespace ddl {
namespace {

constexpr int kSocketFd = kSupervisorSocketFd;
constexpr std::size_t kSpawnFds = 4;  // payload, stdin, stdout, stderr
constexpr int kMaxEvents = 64;
struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;      // invalid: none was to be had, SIGCHLD serves
  UniqueFd exec_pipe;  // valid: it is not known yet whether the program runs
};

// What an epoll event is about, packed into its 64 bits of user data.
enum class Source : std::uint32_t { kSocket, kSigchld, kExecPipe, kPidfd };

std::uint64_t Pack(Source source, WorkerId worker) {
  constexpr unsigned kShift = 32;
  return (std::uint64_t{static_cast<std::uint32_t>(source)} << kShift) | worker;
}
Source SourceOf(std::uint64_t data) {
  constexpr unsigned kShift = 32;
  return static_cast<Source>(data >> kShift);
}
WorkerId WorkerOf(std::uint64_t data) {
  return static_cast<WorkerId>(data);
}

// One request and the descriptors that came with it.
struct Received {
  SupervisorRequest request;
  std::vector<UniqueFd> fds;
};

class SupervisorProcess {
 public:
  explicit SupervisorProcess(InheritedState inherited);
  [[noreturn]] void Run();

 private:
  bool Watch(int fd, std::uint32_t events, std::uint64_t data, int operation = EPOLL_CTL_ADD);
  void Forget(UniqueFd& fd);
  void Handle(const epoll_event& event);
  void ReadRequests();
  [[nodiscard]] bool Receive(Received& received);
  void Serve(Received& received);
  void Spawn(WorkerId id, const std::vector<UniqueFd>& fds);
  void RefuseSpawn(WorkerId id, const ExecFailure& failure);
  void Signal(WorkerId id, int signal);
  void FinishExec(WorkerId id);
  void ReapWorker(WorkerId id);
  void ReapOrphans();
  void LauncherIsGone();
  [[nodiscard]] int TimeoutMs() const;
  void CheckLease();
  void ContinueKill();
  void TellLeftBehind();
  void Answer(const SupervisorEvent& event);
  void FlushAnswers();
  [[noreturn]] void End();

  const InheritedState inherited_;
  UniqueFd epoll_;
  UniqueFd sigchld_;
  std::map<WorkerId, Child> children_;
  std::unordered_map<pid_t, WorkerId> by_pid_;
  std::deque<SupervisorEvent> answers_;
  bool waits_for_room_ = false;  // answers_ could not all be sent
  TreeKiller killer_;
  WorkerId kill_ticket_ = 0;  // of the last request
  bool launcher_gone_ = false;
  Instant lease_until_ = Instant::max();  // max: no limit
  bool lease_is_handled_ = false;         // it has passed, and nothing was started since
  std::vector<std::string> remove_at_end_;
};

bool AnyChildLeft() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

SupervisorProcess::SupervisorProcess(InheritedState inherited)
    : inherited_(inherited), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  sigset_t sigchld{};
  ::sigemptyset(&sigchld);
  ::sigaddset(&sigchld, SIGCHLD);
  sigchld_.reset(::signalfd(-1, &sigchld, SFD_CLOEXEC | SFD_NONBLOCK));
  Watch(kSocketFd, EPOLLIN, Pack(Source::kSocket, kEveryWorker));
  Watch(sigchld_.get(), EPOLLIN, Pack(Source::kSigchld, kEveryWorker));
}

bool SupervisorProcess::Watch(int fd, std::uint32_t events, std::uint64_t data, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

// Closing alone would not end the watch while a child that has not reached its
// exec holds a copy.
void SupervisorProcess::Forget(UniqueFd& fd) {
  if (fd.valid()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
    fd.reset();
  }
}

void SupervisorProcess::Run() {
  std::array<epoll_event, kMaxEvents> events{};
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, TimeoutMs());
    for (int i = 0; i < n; ++i) {
      Handle(events[static_cast<std::size_t>(i)]);
    }
    ReapOrphans();
    CheckLease();
    if (killer_.active()) {
      ContinueKill();
    }
    FlushAnswers();
  }
}

// SIGCHLD wakes us for our own children, but not for those of others.
int SupervisorProcess::TimeoutMs() const {
  constexpr auto kLongest = std::chrono::hours(1);  // so that an int holds it
  Instant until = lease_is_handled_ ? Instant::max() : lease_until_;
  if (killer_.active()) {
    until = std::min(until, killer_.next_look());
  }
  if (until == Instant::max()) {
    return -1;
  }
  const Instant now = MonotonicNow();
  const auto left = std::min(until, now + kLongest) - now;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::max<std::int64_t>(ms, 0));
}

// The dead man's switch. What lies in the socket counts before the time does:
// this process may itself have been kept from running.
void SupervisorProcess::CheckLease() {
  if (lease_is_handled_ || MonotonicNow() < lease_until_) {
    return;
  }
  ReadRequests();
  const Instant now = MonotonicNow();
  if (now < lease_until_) {
    return;
  }
  lease_is_handled_ = true;
  if (!launcher_gone_ && AnyChildLeft()) {
    SupervisorEvent event;
    event.type = SupervisorEventType::kLeasePassed;
    Answer(event);
    killer_.Begin(now, kKillTimeout);
  }
}

void SupervisorProcess::LauncherIsGone() {
  if (!std::exchange(launcher_gone_, true)) {
    killer_.Begin(MonotonicNow(), kKillTimeout);
  }
}

void SupervisorProcess::Handle(const epoll_event& event) {
  switch (SourceOf(event.data.u64)) {
    case Source::kSocket:
      if ((event.events & (EPOLLHUP | EPOLLERR)) != 0) {
        LauncherIsGone();
      }
      ReadRequests();
      return;
    case Source::kSigchld: {
      signalfd_siginfo ignored{};
      while (::read(sigchld_.get(), &ignored, sizeof(ignored)) > 0) {
      }
      return;
    }
    case Source::kExecPipe:
      FinishExec(WorkerOf(event.data.u64));
      return;
    case Source::kPidfd:
      ReapWorker(WorkerOf(event.data.u64));
      return;
  }
}

void SupervisorProcess::ReadRequests() {
  Received received;
  while (Receive(received)) {
    Serve(received);
    received.fds.clear();
  }
  if (launcher_gone_) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, kSocketFd, nullptr);
  }
}

// False: there is no request to read now.
bool SupervisorProcess::Receive(Received& received) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kSpawnFds * sizeof(int))> control{};
  iovec data{&received.request, sizeof(received.request)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(kSocketFd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) {
    if (n == 0) {  // the other end is closed
      LauncherIsGone();
    }
    return false;
  }
  for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      received.fds.emplace_back(fd);
    }
  }
  return true;
}

void SupervisorProcess::Serve(Received& received) {
  const SupervisorRequest& request = received.request;
  switch (request.type) {
    case SupervisorRequestType::kSpawn:
      if (!launcher_gone_) {
        Spawn(request.worker, received.fds);
      }
      return;
    case SupervisorRequestType::kSignal:
      Signal(request.worker, request.signal);
      return;
    case SupervisorRequestType::kKillAll:
      kill_ticket_ = request.worker;
      killer_.Begin(MonotonicNow(), std::chrono::milliseconds(request.timeout_ms));
      return;
    case SupervisorRequestType::kRemoveAtEnd:
      received.request.path.back() = '\0';
      remove_at_end_.emplace_back(request.path.data());
      return;
    case SupervisorRequestType::kLease:
      lease_until_ = Instant(Duration(request.lease_until_ns));
      lease_is_handled_ = false;
      return;
  }
}

void SupervisorProcess::RefuseSpawn(WorkerId id, const ExecFailure& failure) {
  SupervisorEvent event;
  event.type = SupervisorEventType::kSpawnFailed;
  event.worker = id;
  event.status = failure.error;
  event.step = failure.step;
  Answer(event);
}

void SupervisorProcess::Spawn(WorkerId id, const std::vector<UniqueFd>& fds) {
  if (fds.size() != kSpawnFds) {  // the kernel drops what goes beyond our limit
    RefuseSpawn(id, {EMFILE, SpawnStep::kReceive});
    return;
  }
  SpawnPayload payload;
  if (!payload.Map(fds[0].get())) {
    RefuseSpawn(id, {errno, SpawnStep::kReceive});
    return;
  }
  ForkedWorker forked = ForkWorker(payload, {fds[1].get(), fds[2].get(), fds[3].get()}, inherited_);
  if (forked.pid < 0) {
    RefuseSpawn(id, forked.failure);
    return;
  }
  lease_is_handled_ = false;  // one that has passed is not for this worker either
  Child& child = children_[id];
  child.pid = forked.pid;
  child.exec_pipe = std::move(forked.exec_pipe);
  // By its number: glibc 2.35 and older have no wrapper.
  child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0U)));
  by_pid_[child.pid] = id;
  Watch(child.exec_pipe.get(), EPOLLIN, Pack(Source::kExecPipe, id));
  if (child.pidfd.valid()) {
    ::fcntl(child.pidfd.get(), F_SETFD, FD_CLOEXEC);
    if (!Watch(child.pidfd.get(), EPOLLIN, Pack(Source::kPidfd, id))) {
      child.pidfd.reset();
    }
  }
}

void SupervisorProcess::Signal(WorkerId id, int signal) {
  const bool to_group = signal == SIGSTOP || signal == SIGCONT;
  for (const auto& [worker, child] : children_) {
    if (id == kEveryWorker || id == worker) {
      ::kill(to_group ? -child.pid : child.pid,
             signal);  // not reaped yet, so the pid is still its own
      if (signal == SIGTERM) {
        ::kill(-child.pid, SIGCONT);  // one that is stopped would not hear of it
      }
    }
  }
}

// The program runs, or the way into it failed.
void SupervisorProcess::FinishExec(WorkerId id) {
  const auto it = children_.find(id);
  if (it == children_.end() || !it->second.exec_pipe.valid()) {
    return;
  }
  Child& child = it->second;
  ExecFailure failure;
  const ssize_t n = ::read(child.exec_pipe.get(), &failure, sizeof(failure));
  if (n < 0) {  // nothing yet
    return;
  }
  Forget(child.exec_pipe);
  if (n == sizeof(failure)) {
    RefuseSpawn(id, failure);
    Forget(child.pidfd);
    by_pid_.erase(child.pid);  // from now on reaped as an orphan is
    children_.erase(it);
    return;
  }
  SupervisorEvent event;
  event.type = SupervisorEventType::kSpawned;
  event.worker = id;
  event.pid = child.pid;
  Answer(event);
}

void SupervisorProcess::ReapWorker(WorkerId id) {
  FinishExec(id);
  const auto it = children_.find(id);
  if (it == children_.end()) {
    return;
  }
  int status = 0;
  const pid_t pid = it->second.pid;
  if (::waitpid(pid, &status, WNOHANG) != pid) {
    // Dead, but a debugger's to see first. SIGCHLD comes when it has; the pidfd
    // would wake us without end until then.
    Forget(it->second.pidfd);
    return;
  }
  Forget(it->second.pidfd);
  by_pid_.erase(pid);
  children_.erase(it);
  SupervisorEvent event;
  event.type = SupervisorEventType::kExited;
  event.worker = id;
  event.pid = pid;
  event.status = status;
  event.none_left = AnyChildLeft() ? 0 : 1;
  event.wall_time_s = static_cast<std::int64_t>(std::time(nullptr));
  event.ended_at_ns = MonotonicNow().time_since_epoch().count();
  Answer(event);
}

void SupervisorProcess::ReapOrphans() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
      return;
    }
    const auto it = by_pid_.find(info.si_pid);
    if (it == by_pid_.end()) {
      ::waitpid(info.si_pid, nullptr, WNOHANG);
      continue;
    }
    if (children_.at(it->second).pidfd.valid()) {
      return;  // its own event comes next, in its turn; we are back after it
    }
    ReapWorker(it->second);
  }
}

void SupervisorProcess::ContinueKill() {
  const TreeKiller::Result result = killer_.Continue(MonotonicNow());
  if (result == TreeKiller::Result::kGoesOn) {
    return;
  }
  if (launcher_gone_) {
    End();
  }
  if (result == TreeKiller::Result::kGivenUp) {
    TellLeftBehind();
  }
  SupervisorEvent event;
  event.type = SupervisorEventType::kAllGone;
  event.worker = kill_ticket_;
  Answer(event);
}

void SupervisorProcess::TellLeftBehind() {
  for (const pid_t pid : killer_.just_left()) {
    const auto worker = by_pid_.find(pid);
    SupervisorEvent event;
    event.type = SupervisorEventType::kLeftBehind;
    event.worker = worker == by_pid_.end() ? kEveryWorker : worker->second;
    event.pid = pid;
    event.status = static_cast<unsigned char>(StateOf(pid));
    Answer(event);
  }
}

void SupervisorProcess::Answer(const SupervisorEvent& event) {
  answers_.push_back(event);
}

void SupervisorProcess::FlushAnswers() {
  while (!answers_.empty() && !launcher_gone_) {
    const SupervisorEvent& event = answers_.front();
    if (::send(kSocketFd, &event, sizeof(event), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      break;  // full: goes on when there is room; closed: the epoll says so
    }
    answers_.pop_front();
  }
  if (launcher_gone_) {
    answers_.clear();
    return;
  }
  if (waits_for_room_ == answers_.empty()) {
    waits_for_room_ = !answers_.empty();
    Watch(kSocketFd, waits_for_room_ ? EPOLLIN | EPOLLOUT : EPOLLIN,
          Pack(Source::kSocket, kEveryWorker), EPOLL_CTL_MOD);
  }
}

void SupervisorProcess::End() {
  for (const std::string& directory : remove_at_end_) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  ::_exit(0);
}

}  // namespace

void RunSupervisorProcess(UniqueFd socket) {
  SupervisorProcess(SetUpSupervisor(std::move(socket))).Run();
}

}  // namespace ddl
