// Addresses of this host.
#include "launcher/net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/host.h"
#include "agent/base/unique_fd.h"

namespace ddl {
namespace {

struct FreeAddrInfo {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddrInfo = std::unique_ptr<addrinfo, FreeAddrInfo>;

absl::StatusOr<AddrInfo> Resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = IsAddressLiteral(host) ? AI_NUMERICHOST : 0;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot resolve host name \"", host, "\": ", ::gai_strerror(error)));
  }
  return AddrInfo(list);
}

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
std::optional<std::string> SourceAddress(const sockaddr* destination, socklen_t length) {
  const UniqueFd fd(::socket(destination->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), destination, length) != 0) {
    return std::nullopt;
  }
  sockaddr_storage own{};
  socklen_t own_length = sizeof own;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  auto* address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(fd.get(), address, &own_length) != 0) {
    return std::nullopt;
  }
  return ToText(address);
}

// The address of the default route: towards a documentation address (RFC 5737,
// RFC 3849), to which nothing is sent.
std::optional<std::string> DefaultRouteAddress() {
  for (const char* outside : {"192.0.2.1", "2001:db8::1"}) {
    auto destination = Resolve(outside, 9);
    if (destination.ok()) {
      auto source = SourceAddress((*destination)->ai_addr, (*destination)->ai_addrlen);
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

absl::StatusOr<bool> IsOwnAddress(const std::string& host) {
  const auto resolved = Resolve(host, 0);
  if (!resolved.ok()) {
    return resolved.status();
  }
  const std::set<std::string> own = OwnAddresses();
  for (const addrinfo* entry = resolved->get(); entry != nullptr; entry = entry->ai_next) {
    const std::string address = ToText(entry->ai_addr);
    if (IsLoopbackText(address) || own.contains(address)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, std::uint16_t port) {
  const auto resolved = Resolve(host, port);
  if (!resolved.ok()) {
    return resolved.status();
  }
  for (const addrinfo* entry = resolved->get(); entry != nullptr; entry = entry->ai_next) {
    auto source = SourceAddress(entry->ai_addr, entry->ai_addrlen);
    if (!source.has_value()) {
      continue;
    }
    if (IsLoopbackText(*source) && !IsLoopbackLiteral(host) && host != "localhost") {
      auto outward = DefaultRouteAddress();
      if (!outward.has_value()) {
        outward = FirstOutwardAddress();
      }
      return outward.value_or(*source);
    }
    return *source;
  }
  return absl::UnavailableError(absl::StrCat("no route from this host to ",
                                             JoinHostPort(host, port), ": ", std::strerror(errno),
                                             "; --local-addr sets the address to advertise"));
}

}  // namespace ddl
