// The accepting thread.
#include "agent/service/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/check.h"
#include "agent/base/clock.h"
#include "agent/base/host.h"

namespace ddl {
namespace {

// Descriptors that are left for everything but connections.
constexpr int kSpareDescriptors = 32;
constexpr int kRestMs = 100;
constexpr Duration kWarnInterval = std::chrono::seconds(10);
// The kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 65'535;

struct FreeAddrInfo {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
std::uint16_t PortOf(int fd) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  DDL_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0);
  // Both families keep the port at the same place, right after the family.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

// Nothing, with errno: it cannot listen there.
std::optional<UniqueFd> ListenOn(const addrinfo& entry, std::uint16_t port) {
  UniqueFd fd(::socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage address{};
  const auto* const given = reinterpret_cast<const unsigned char*>(entry.ai_addr);
  std::copy(given, given + entry.ai_addrlen, reinterpret_cast<unsigned char*>(&address));
  reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
  const int on = 1;
  const int off = 0;
  const bool is_v6 = entry.ai_family == AF_INET6;
  // Accepted sockets inherit TCP_NODELAY.
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      (is_v6 && ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), entry.ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return std::nullopt;
  }
  return fd;
}
// NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)

absl::Status CannotListen(const std::string& where, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", where, ": the port is taken"));
  }
  if (error == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot listen on ", where, ": this user may not; give a port above 1023"));
  }
  return absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ",
                                             error == EADDRNOTAVAIL
                                                 ? "it is no address of this host"
                                                 : std::generic_category().message(error)));
}

int DescriptorLimit() {
  rlimit limit{};
  constexpr rlim_t kMost = 1'000'000'000;
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<int>(std::min(limit.rlim_cur, kMost))
                                                 : static_cast<int>(kMost);
}

}  // namespace

Listener::Listener() : stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Listener::~Listener() {
  Stop();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& host,
                                                         std::uint16_t port) {
  const std::string where = JoinHostPort(host, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  // Where IPv6 is disabled, "::" still means every address.
  const int wrong = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  const std::unique_ptr<addrinfo, FreeAddrInfo> owner(list);
  if (wrong != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", where, ": ", ::gai_strerror(wrong)));
  }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private.
  std::unique_ptr<Listener> listener(new Listener);
  if (!listener->stop_.valid()) {
    return CannotListen(where, errno);
  }
  listener->port_ = port;
  int error = 0;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    auto fd = ListenOn(*entry, listener->port_);
    if (!fd.has_value()) {
      error = errno;
      continue;
    }
    listener->port_ = PortOf(fd->get());
    listener->sockets_.push_back(*std::move(fd));
  }
  if (listener->sockets_.empty() && host == "::" &&
      (error == EAFNOSUPPORT || error == EADDRNOTAVAIL)) {
    return Open("0.0.0.0", port);
  }
  if (listener->sockets_.empty() || error == EADDRINUSE) {
    return CannotListen(where, error);
  }
  return listener;
}

void Listener::Start(Take take, Warn warn) {
  take_ = std::move(take);
  warn_ = std::move(warn);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "ddl-listen");
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    DDL_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
  }
  sockets_.clear();
}

void Listener::Run() const {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  for (const UniqueFd& socket : sockets_) {
    polled.push_back({socket.get(), POLLIN, 0});
  }
  std::optional<Instant> warned_at;
  for (;;) {
    ::poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) {
      return;
    }
    bool must_rest = false;
    std::string complaint;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptAll(polled[i].fd, complaint)) {
        must_rest = true;
      }
    }
    const Instant now = MonotonicNow();
    if (!complaint.empty() && warn_ &&
        (!warned_at.has_value() || now - *warned_at >= kWarnInterval)) {
      warned_at = now;
      warn_(complaint);
    }
    if (must_rest) {
      ::poll(polled.data(), 1, kRestMs);
    }
  }
}

bool Listener::AcceptAll(int listener, std::string& complaint) const {
  const int limit = DescriptorLimit();
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return true;
    }
    if (!fd.valid() &&
        (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      complaint =
          absl::StrCat("no connection can be taken: ", std::generic_category().message(errno),
                       "; raise the limit of open files (ulimit -n)");
      return false;
    }
    if (!fd.valid()) {
      continue;  // that one was gone again
    }
    if (fd.get() >= limit - kSpareDescriptors) {
      complaint = absl::StrCat("connections are sent away: ", limit,
                               " open files are the limit; raise it (ulimit -n)");
      continue;
    }
    take_(listener, std::move(fd));
  }
}

}  // namespace ddl
