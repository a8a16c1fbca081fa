// Addresses of this host.
#include "launcher/net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"

namespace ddl {
namespace {

// How long a host may take to answer before its first address is taken as it is.
constexpr auto kAnswerTimeout = std::chrono::seconds(1);

struct FreeAddrInfo {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddrInfo = std::unique_ptr<addrinfo, FreeAddrInfo>;

// In numbers, without a scope.
std::string ToText(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  // NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  const void* bytes =
      address->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  // NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)
  return ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr ? ""
                                                                                     : text.data();
}

bool IsLoopbackText(const std::string& address) {
  return address == "::1" || absl::StartsWith(address, "127.");
}

std::set<std::string> OwnAddresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return addresses;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr &&
        (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6)) {
      addresses.insert(ToText(entry->ifa_addr));
    }
  }
  return addresses;
}

// For a network without a way out: the first address of an interface that is up
// and not of this host or this link only.
std::optional<std::string> FirstOutwardAddress() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool is_ip = entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET ||
                                                      entry->ifa_addr->sa_family == AF_INET6);
    if (!is_ip || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    std::string address = ToText(entry->ifa_addr);
    if (!absl::StartsWith(address, "169.254.") && !absl::StartsWith(address, "fe80:")) {
      return address;
    }
  }
  return std::nullopt;
}

// The source address the kernel picks for one destination.
std::optional<std::string> SourceAddress(const SocketAddress& destination) {
  // NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  const UniqueFd fd(::socket(destination.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress own{{}, sizeof(sockaddr_storage)};
  if (!fd.valid() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&destination.storage),
                destination.length) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) {
    return std::nullopt;
  }
  // NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)
  return ToText(own);
}

// One of the addresses of a name, and this host's own on the way to it.
struct Way {
  const SocketAddress* to;
  std::string source;
};

std::vector<Way> WaysTo(const std::vector<SocketAddress>& addresses) {
  std::vector<Way> ways;
  for (const SocketAddress& address : addresses) {
    if (auto source = SourceAddress(address)) {
      ways.push_back({&address, *std::move(source)});
    }
  }
  return ways;
}

// A connection that was begun; its descriptor is writable once it is decided.
UniqueFd BeginConnect(const SocketAddress& to) {
  UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  const auto* const address = reinterpret_cast<const sockaddr*>(&to.storage);
  if (fd.valid() && ::connect(fd.get(), address, to.length) != 0 && errno != EINPROGRESS &&
      errno != ECONNREFUSED) {
    fd.reset();
  }
  return fd;
}

// A refusal is an answer too: the host is there, its coordinator not yet.
bool HasAnswered(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
         (error == 0 || error == ECONNREFUSED);
}

// Which of the ways leads there: a name may have an address of a family that
// does not get through. Asked only where the ways start at different addresses;
// the first where none answers in time.
std::size_t FirstToAnswer(const std::vector<Way>& ways) {
  const bool all_alike = std::all_of(
      ways.begin(), ways.end(), [&](const Way& way) { return way.source == ways.front().source; });
  if (all_alike) {
    return 0;
  }
  std::vector<UniqueFd> connections;
  std::vector<pollfd> polled;
  for (const Way& way : ways) {
    connections.push_back(BeginConnect(*way.to));
    polled.push_back({connections.back().get(), POLLOUT, 0});
  }
  const Instant deadline = MonotonicNow() + kAnswerTimeout;
  while (std::any_of(polled.begin(), polled.end(), [](const pollfd& one) { return one.fd >= 0; })) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - MonotonicNow()).count();
    if (left <= 0 || ::poll(polled.data(), polled.size(), static_cast<int>(left)) < 0) {
      return 0;
    }
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd >= 0 && polled[i].revents != 0) {
        if (HasAnswered(polled[i].fd)) {
          return i;
        }
        polled[i].fd = -1;  // no way; poll(2) leaves it out
      }
    }
  }
  return 0;
}

// The address of the default route: towards a documentation address (RFC 5737,
// RFC 3849), to which nothing is sent.
std::optional<std::string> DefaultRouteAddress() {
  constexpr std::uint16_t kDiscardPort = 9;
  for (const char* outside : {"192.0.2.1", "2001:db8::1"}) {
    if (const auto destination = Resolve(outside, kDiscardPort); destination.ok()) {
      auto source = SourceAddress(destination->front());
      if (source.has_value() && !IsLoopbackText(*source)) {
        return source;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

bool IsAddressLiteral(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

bool IsLoopbackLiteral(const std::string& host) {
  return IsAddressLiteral(host) && IsLoopbackText(host);
}

bool IsLocalhostName(const std::string& host) {
  return host == "localhost" || absl::EndsWith(host, ".localhost") ||
         host == "localhost.localdomain";
}

std::string ToText(const SocketAddress& address) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  return ToText(reinterpret_cast<const sockaddr*>(&address.storage));
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = IsAddressLiteral(host) ? AI_NUMERICHOST : 0;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const AddrInfo owner(list);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; error == 0 && entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      SocketAddress& address = addresses.emplace_back(SocketAddress{{}, entry->ai_addrlen});
      std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    }
  }
  if (addresses.empty()) {
    return absl::NotFoundError(
        absl::StrCat("cannot resolve host name \"", host,
                     "\": ", error == 0 ? "it has no address" : ::gai_strerror(error)));
  }
  return addresses;
}

Owner OwnerOf(const std::vector<SocketAddress>& addresses) {
  const std::set<std::string> own = OwnAddresses();
  Owner owner = Owner::kAnother;
  for (const SocketAddress& address : addresses) {
    const std::string text = ToText(address);
    if (IsLoopbackText(text)) {
      owner = Owner::kLoopback;
    } else if (own.contains(text)) {
      return Owner::kThisHost;
    }
  }
  return owner;
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host,
                                                const std::vector<SocketAddress>& addresses) {
  const std::vector<Way> ways = WaysTo(addresses);
  if (ways.empty()) {
    return absl::UnavailableError(absl::StrCat("no route from this host to ", host, ": ",
                                               std::strerror(errno),
                                               "; --local-addr sets the address to advertise"));
  }
  const std::string& source = ways[FirstToAnswer(ways)].source;
  if (!IsLoopbackText(source) || IsLoopbackLiteral(host) || IsLocalhostName(host)) {
    return source;
  }
  const std::string outward = OutwardAddress();
  return outward.empty() ? source : outward;
}

std::string OutwardAddress() {
  if (const auto address = DefaultRouteAddress(); address.has_value()) {
    return *address;
  }
  return FirstOutwardAddress().value_or("");
}

}  // namespace ddl
