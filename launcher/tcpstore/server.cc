// The store's thread: connections come, are served, and go.
#include "launcher/tcpstore/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/clock.h"
#include "agent/base/thread_signals.h"
#include "launcher/tcpstore/connection.h"
#include "launcher/tcpstore/key_table.h"

namespace ddl::tcpstore {
namespace {

// In epoll's data: what is not a client's number.
constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kStop = 1;
constexpr std::uint64_t kFirstClient = 2;

constexpr std::size_t kReadBytes = 64 * kKib;
constexpr int kMaxEvents = 256;
// Taken in one turn; clients that are here wait no longer for a flood of others.
constexpr int kMaxAcceptsPerTurn = 64;
// How soon newcomers are tried again where descriptors ran out.
constexpr std::chrono::milliseconds kRetryAccept{100};
// Enough to see what goes on; a flood of strangers must not fill a log.
constexpr int kMaxWords = 50;

// A peer whose host died is noticed after two minutes.
void KeepAlive(int fd) {
  constexpr int kOn = 1;
  constexpr int kIdleS = 60;
  constexpr int kIntervalS = 15;
  constexpr int kProbes = 4;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof kIdleS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kIntervalS, sizeof kIntervalS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

bool IsOutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(UniqueFd listener, Options options)
      : options_(std::move(options)), listener_(std::move(listener)), table_(options_.limits) {}

  absl::Status Open();
  void Run();
  void Stop();

  std::thread thread;

 private:
  bool Watch(int operation, int fd, std::uint64_t id, std::uint32_t interest) const;
  void AcceptSome();
  void Add(UniqueFd fd);
  void PauseAccepting(const std::string& why);
  void ResumeAccepting();
  void OnClient(std::uint64_t id, std::uint32_t events);
  // False: it was closed.
  bool Settle(Connection& connection, const absl::Status& status);
  void DeliverWoken();
  void Close(Connection& connection);
  void Say(bool is_warning, const std::string& text);

  const Options options_;
  const UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  KeyTable table_;
  std::unordered_map<KeyTable::Client, Connection> connections_;
  KeyTable::Client next_client_ = kFirstClient;
  std::size_t buffered_bytes_ = 0;
  bool is_accepting_ = true;
  Instant paused_at_;  // when it is not
  bool said_that_full_ = false;
  int words_ = 0;
  std::vector<char> read_buffer_ = std::vector<char>(kReadBytes);
};

absl::Status StoreServer::Loop::Open() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int flags = ::fcntl(listener_.get(), F_GETFL);
  if (!epoll_.valid() || !stop_.valid() || flags < 0 ||
      ::fcntl(listener_.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      !Watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN) ||
      !Watch(EPOLL_CTL_ADD, stop_.get(), kStop, EPOLLIN)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve PyTorch's store: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

bool StoreServer::Loop::Watch(int operation, int fd, std::uint64_t id,
                              std::uint32_t interest) const {
  epoll_event event{};
  event.events = interest;
  event.data.u64 = id;
  return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

void StoreServer::Loop::Stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

void StoreServer::Loop::Run() {
  ::pthread_setname_np(::pthread_self(), "ddl-tcpstore");
  std::array<epoll_event, kMaxEvents> events{};
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents,
                                   is_accepting_ ? -1 : static_cast<int>(kRetryAccept.count()));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kStop) {
        return;
      }
      if (event.data.u64 == kListener) {
        AcceptSome();
      } else {
        OnClient(event.data.u64, event.events);
      }
    }
    if (!is_accepting_ && MonotonicNow() - paused_at_ >= kRetryAccept) {
      ResumeAccepting();
    }
  }
}

// ---- newcomers --------------------------------------------------------------

void StoreServer::Loop::AcceptSome() {
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    if (connections_.size() >= options_.limits.max_connections) {
      PauseAccepting(absl::StrCat(options_.limits.max_connections, " connections are open"));
      return;
    }
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (IsOutOfResources(errno)) {
        PauseAccepting(std::strerror(errno));
        return;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      }
      continue;  // that one has gone already
    }
    Add(std::move(fd));
  }
}

void StoreServer::Loop::Add(UniqueFd fd) {
  KeepAlive(fd.get());
  const KeyTable::Client client = next_client_++;
  if (!Watch(EPOLL_CTL_ADD, fd.get(), client, EPOLLIN)) {
    return;
  }
  auto& connection = connections_
                         .emplace(std::piecewise_construct, std::forward_as_tuple(client),
                                  std::forward_as_tuple(std::move(fd), client, options_.limits))
                         .first->second;
  connection.interest = EPOLLIN;
}

void StoreServer::Loop::PauseAccepting(const std::string& why) {
  is_accepting_ = false;
  paused_at_ = MonotonicNow();
  Watch(EPOLL_CTL_MOD, listener_.get(), kListener, 0);
  if (!std::exchange(said_that_full_, true)) {
    Say(true, absl::StrCat("PyTorch's store takes no more connections now, ", why,
                           "; others wait until some are closed",
                           options_.remedy.empty() ? "" : "; ", options_.remedy));
  }
}

void StoreServer::Loop::ResumeAccepting() {
  if (!is_accepting_ && connections_.size() < options_.limits.max_connections) {
    is_accepting_ = Watch(EPOLL_CTL_MOD, listener_.get(), kListener, EPOLLIN);
  }
}

// ---- those who are here -----------------------------------------------------

void StoreServer::Loop::OnClient(std::uint64_t id, std::uint32_t events) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) {
    return;  // closed in this turn
  }
  Connection& connection = it->second;
  absl::Status status;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    const ssize_t got =
        ::recv(connection.fd(), read_buffer_.data(), read_buffer_.size(), MSG_DONTWAIT);
    if (got > 0) {
      status = connection.Receive({read_buffer_.data(), static_cast<std::size_t>(got)}, table_);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      status = absl::CancelledError("the client has gone");
    }
  }
  if (status.ok()) {
    status = connection.Flush(table_);
  }
  Settle(connection, status);
  DeliverWoken();
}

bool StoreServer::Loop::Settle(Connection& connection, const absl::Status& status) {
  buffered_bytes_ += connection.buffered_bytes() - connection.counted_bytes;
  connection.counted_bytes = connection.buffered_bytes();
  if (!status.ok()) {
    if (!absl::IsCancelled(status)) {
      Say(absl::IsResourceExhausted(status),
          absl::StrCat("a connection to PyTorch's store was closed: ", status.message()));
    }
    Close(connection);
    return false;
  }
  // Not one that holds no more than its share: it is not to blame.
  if (buffered_bytes_ > options_.limits.max_buffered_bytes &&
      connection.counted_bytes >
          options_.limits.max_buffered_bytes / options_.limits.max_connections) {
    Say(true, absl::StrCat("a connection to PyTorch's store was closed: more than ",
                           options_.limits.max_buffered_bytes,
                           " bytes wait for clients that do not read, or do not finish"));
    Close(connection);
    return false;
  }
  const std::uint32_t interest =
      (connection.wants_read() ? EPOLLIN : 0U) | (connection.wants_write() ? EPOLLOUT : 0U);
  if (interest != connection.interest) {
    connection.interest = interest;
    Watch(EPOLL_CTL_MOD, connection.fd(), connection.client(), interest);
  }
  return true;
}

// A woken client may have asked more already, and wake others in turn.
void StoreServer::Loop::DeliverWoken() {
  for (std::vector<KeyTable::Client> woken = table_.TakeWoken(); !woken.empty();
       woken = table_.TakeWoken()) {
    for (const KeyTable::Client client : woken) {
      const auto it = connections_.find(client);
      if (it != connections_.end()) {
        it->second.Wake();
        Settle(it->second, it->second.Flush(table_));
      }
    }
  }
}

void StoreServer::Loop::Close(Connection& connection) {
  table_.CancelWait(connection.client());
  buffered_bytes_ -= connection.counted_bytes;
  connections_.erase(connection.client());
  ResumeAccepting();
}

void StoreServer::Loop::Say(bool is_warning, const std::string& text) {
  if (options_.say != nullptr && words_ < kMaxWords) {
    ++words_;
    options_.say(is_warning, text);
  }
}

// ---- the thread -------------------------------------------------------------

StoreServer::StoreServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(UniqueFd listener,
                                                                Options options) {
  auto loop = std::make_unique<Loop>(std::move(listener), std::move(options));
  if (absl::Status status = loop->Open(); !status.ok()) {
    return status;
  }
  const BlockAllSignals no_signals;
  try {
    loop->thread = std::thread([raw = loop.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve PyTorch's store: no thread: ", error.what()));
  }
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(loop)));
}

StoreServer::~StoreServer() {
  loop_->Stop();
  loop_->thread.join();
}

}  // namespace ddl::tcpstore
