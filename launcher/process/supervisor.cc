// ddlaunch's end of the socket to the supervisor process.
#include "launcher/process/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "agent/base/errno_text.h"
#include "agent/base/status_macros.h"
#include "launcher/process/spawn_payload.h"
#include "launcher/process/supervisor_process.h"

namespace ddl {
namespace {

// How long the supervisor may leave its socket unread before it is given up.
constexpr auto kSendTimeout = std::chrono::seconds(10);
// How long its end, with all its workers', is waited for.
constexpr auto kEndTimeout = kKillTimeout + std::chrono::seconds(1);
// Between two looks at its end where there is no pidfd.
constexpr auto kLookAgain = std::chrono::milliseconds(1);
// Between two tries to send what found no room.
constexpr auto kTryAgain = std::chrono::milliseconds(10);
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
                       EncodeSpawnPayload(request.argv, request.env, request.cwd, request.cpus));
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

absl::Status Supervisor::KillAll(WorkerId ticket, Duration timeout) {
  SupervisorRequest message;
  message.type = SupervisorRequestType::kKillAll;
  message.worker = ticket;
  message.timeout_ms = static_cast<std::int32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  return Send(message, kRequestHeaderBytes, {});
}

absl::Status Supervisor::SetLease(Instant until) {
  SupervisorRequest message;
  message.type = SupervisorRequestType::kLease;
  message.lease_until_ns = until.time_since_epoch().count();
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
  const auto* const begin = reinterpret_cast<const char*>(&request);
  std::vector<char> message(begin, begin + bytes);
  if (!waiting_.empty()) {
    return Enqueue(std::move(message), fds);
  }
  const absl::Status sent = SendNow(message, fds);
  return absl::IsUnavailable(sent) && !gone_ ? Enqueue(std::move(message), fds) : sent;
}

// UNAVAILABLE and not gone(): no room now.
absl::Status Supervisor::SendNow(const std::vector<char>& bytes, const std::vector<int>& fds) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
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
  while (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case ENOBUFS:
      case ETOOMANYREFS:  // too many descriptors under way; the supervisor takes them
        return absl::UnavailableError("no room");
      case EPIPE:
      case ECONNRESET:
        return Gone();
      default:
        return absl::ResourceExhaustedError(ErrnoText("cannot ask the supervisor", errno));
    }
  }
  return absl::OkStatus();
}

// With copies of the descriptors, which stay the caller's.
absl::Status Supervisor::Enqueue(std::vector<char> bytes, const std::vector<int>& fds) {
  WaitingRequest request;
  for (const int fd : fds) {
    request.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!request.fds.back().valid()) {
      return absl::ResourceExhaustedError(
          ErrnoText("cannot keep a worker's descriptors until they are sent", errno));
    }
  }
  request.bytes = std::move(bytes);
  if (waiting_.empty()) {
    no_room_since_ = last_try_ = MonotonicNow();
  }
  waiting_.push_back(std::move(request));
  return absl::OkStatus();
}

absl::Status Supervisor::FlushRequests() {
  while (!waiting_.empty()) {
    last_try_ = MonotonicNow();
    std::vector<int> fds;
    for (const UniqueFd& fd : waiting_.front().fds) {
      fds.push_back(fd.get());
    }
    const absl::Status sent = SendNow(waiting_.front().bytes, fds);
    if (absl::IsUnavailable(sent) && !gone_) {
      if (last_try_ - no_room_since_ >= kSendTimeout) {
        GiveUp();
        return Gone();
      }
      return absl::OkStatus();
    }
    DDL_RETURN_IF_ERROR(sent);
    waiting_.pop_front();
    no_room_since_ = last_try_;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SupervisorEvent>> Supervisor::Next() {
  SupervisorEvent event;
  ssize_t n = -1;
  do {
    n = ::recv(socket_.get(), &event, sizeof(event), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof(event)) {
    return std::optional<SupervisorEvent>(event);
  }
  if (gone_ || n >= 0 || errno != EAGAIN) {
    return Gone();
  }
  DDL_RETURN_IF_ERROR(FlushRequests());
  return std::optional<SupervisorEvent>();
}

std::optional<Instant> Supervisor::deadline() const {
  if (waiting_.empty()) {
    return std::nullopt;
  }
  return last_try_ + kTryAgain;
}

void Supervisor::GiveUp() {
  if (!gone_) {
    given_up_ = true;
    ::kill(pid_, SIGKILL);
    [[maybe_unused]] const absl::Status same_for_all = Gone();
  }
}

// The workers have got SIGKILL from the kernel; what they had started was
// handed to this process, its nearest living subreaper.
TreeKiller::Result Supervisor::KillRest(Instant now) {
  if (!std::exchange(rest_begun_, true)) {
    rest_.Begin(now, kKillTimeout);
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return rest_.active() ? rest_.Continue(now) : TreeKiller::Result::kNobody;
}

absl::Status Supervisor::Gone() {
  gone_ = true;
  waiting_.clear();
  const std::string who = "the supervisor process (pid " + std::to_string(pid_) + ") ";
  if (given_up_) {
    return absl::UnavailableError(who + "did not answer and was killed, and with it all workers " +
                                  "of this node; was it stopped?");
  }
  return absl::UnavailableError(
      who +
      "was killed, and with it all workers of this node; was it the out-of-memory killer? "
      "Look at dmesg");
}

}  // namespace ddl
