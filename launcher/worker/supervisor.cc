// ddlaunch's end of the socket to the supervisor process.
#include "launcher/worker/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "agent/base/status_macros.h"
#include "launcher/worker/errno_text.h"
#include "launcher/worker/process_tree.h"
#include "launcher/worker/spawn_payload.h"
#include "launcher/worker/supervisor_process.h"

namespace ddl {
namespace {

// How long the supervisor may leave its socket unread before it is given up.
constexpr auto kSendTimeout = std::chrono::seconds(10);
// How long its end, with all its workers', is waited for.
constexpr auto kEndTimeout = std::chrono::seconds(5);
// Between two looks where no descriptor tells.
constexpr auto kLookAgain = std::chrono::milliseconds(1);
constexpr std::size_t kMaxFds = 4;

void OpenClosedStandardStreams() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0 || fd > STDERR_FILENO) {
      const UniqueFd closes_it(fd);
      return;
    }
  }
}

int PollTimeoutMs(Instant deadline) {
  const Duration left = deadline - MonotonicNow();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  constexpr std::int64_t kMaxMs = 60'000;
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, kMaxMs));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Fork() {
  OpenClosedStandardStreams();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return absl::ResourceExhaustedError(ErrnoText("cannot open a socket pair", errno));
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t pid = ::fork();
  if (pid < 0) {
    return absl::ResourceExhaustedError(ErrnoText("cannot start the supervisor process", errno));
  }
  if (pid == 0) {
    ours.reset();
    RunSupervisorProcess(std::move(theirs));
  }
  return std::unique_ptr<Supervisor>(new Supervisor(pid, std::move(ours)));
}

Supervisor::~Supervisor() {
  socket_.reset();
  if (gone_) {
    return;
  }
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0U)));
  const Instant deadline = MonotonicNow() + kEndTimeout;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0 && MonotonicNow() < deadline) {
    pollfd ended{pidfd.get(), POLLIN, 0};  // without a pidfd: just a short wait
    ::poll(&ended, 1, static_cast<int>(kLookAgain.count()));
  }
}

absl::Status Supervisor::Spawn(const SpawnRequest& request) {
  DDL_ASSIGN_OR_RETURN(const UniqueFd payload,
                       EncodeSpawnPayload(request.argv, request.env, request.cwd));
  SupervisorRequest message;
  message.type = SupervisorRequestType::kSpawn;
  message.worker = request.worker;
  return Send(message, kRequestHeaderBytes,
              {payload.get(), request.stdin_fd, request.stdout_fd, request.stderr_fd});
}

absl::Status Supervisor::Signal(WorkerId worker, int signal) {
  SupervisorRequest message;
  message.type = SupervisorRequestType::kSignal;
  message.worker = worker;
  message.signal = signal;
  return Send(message, kRequestHeaderBytes, {});
}

absl::Status Supervisor::KillAll() {
  SupervisorRequest message;
  message.type = SupervisorRequestType::kKillAll;
  return Send(message, kRequestHeaderBytes, {});
}

absl::Status Supervisor::RemoveAtEnd(const std::string& directory) {
  SupervisorRequest message;
  if (directory.size() >= message.path.size()) {
    return absl::InvalidArgumentError("the path of a directory is too long: " + directory);
  }
  message.type = SupervisorRequestType::kRemoveAtEnd;
  std::memcpy(message.path.data(), directory.c_str(), directory.size() + 1);
  return Send(message, kRequestHeaderBytes + directory.size() + 1, {});
}

absl::Status Supervisor::Send(const SupervisorRequest& request, std::size_t bytes,
                              const std::vector<int>& fds) {
  if (gone_) {
    return Gone();
  }
  iovec data{const_cast<SupervisorRequest*>(&request), bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  const Instant deadline = MonotonicNow() + kSendTimeout;
  while (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    // ETOOMANYREFS: too many descriptors under way; the supervisor takes them.
    if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS && errno != ENOBUFS) {
      return errno == EPIPE || errno == ECONNRESET
                 ? Gone()
                 : absl::ResourceExhaustedError(ErrnoText("cannot ask the supervisor", errno));
    }
    if (MonotonicNow() >= deadline) {
      return absl::UnavailableError("the supervisor process (pid " + std::to_string(pid_) +
                                    ") does not answer; is it stopped?");
    }
    pollfd room{socket_.get(), POLLIN, 0};
    ::poll(&room, 1, static_cast<int>(kLookAgain.count()));
    DDL_RETURN_IF_ERROR(ReadEvents());
  }
  return absl::OkStatus();
}

// Takes all that can be read without waiting.
absl::Status Supervisor::ReadEvents() {
  if (gone_) {
    return Gone();
  }
  for (;;) {
    SupervisorEvent event;
    const ssize_t n = ::recv(socket_.get(), &event, sizeof(event), MSG_DONTWAIT);
    if (n == sizeof(event)) {
      events_.push_back(event);
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      return absl::OkStatus();
    }
    return Gone();
  }
}

absl::StatusOr<std::optional<SupervisorEvent>> Supervisor::Next() {
  const absl::Status read = ReadEvents();
  if (events_.empty()) {
    if (!read.ok()) {
      return read;
    }
    return std::optional<SupervisorEvent>();
  }
  std::optional<SupervisorEvent> event(events_.front());
  events_.pop_front();
  return event;
}

absl::StatusOr<std::optional<SupervisorEvent>> Supervisor::Wait(Instant deadline) {
  for (;;) {
    DDL_ASSIGN_OR_RETURN(const std::optional<SupervisorEvent> event, Next());
    if (event.has_value() || MonotonicNow() >= deadline) {
      return event;
    }
    pollfd readable{socket_.get(), POLLIN, 0};
    ::poll(&readable, 1, PollTimeoutMs(deadline));
  }
}

// The workers have got SIGKILL from the kernel; what they had started was
// handed to this process, its nearest living subreaper. REQUIRES: the
// supervisor is the only child this process ever has.
absl::Status Supervisor::Gone() {
  if (!gone_) {
    gone_ = true;
    const Instant deadline = MonotonicNow() + kEndTimeout;
    while (KillDescendants(::getpid()) > 0 && MonotonicNow() < deadline) {
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }
  return absl::UnavailableError(
      "the supervisor process (pid " + std::to_string(pid_) +
      ") was killed, and with it all workers of this node; was it the out-of-memory killer? "
      "Look at dmesg");
}

}  // namespace ddl
