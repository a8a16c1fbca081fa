// Host the coordinator, or find it.
#include "launcher/net/meeting_place.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/host.h"
#include "agent/base/status_macros.h"
#include "agent/store/memory_store.h"
#include "launcher/net/address.h"

namespace ddl {
namespace {

absl::StatusOr<std::unique_ptr<Coordinator>> Host(
    const LaunchConfig& config, const std::string& listen_host, std::uint16_t port,
    std::function<void(const core::Explain&)> explain) {
  Coordinator::Options options;
  options.core.heartbeat_interval = config.heartbeat_interval;
  options.core.heartbeat_timeout = config.heartbeat_timeout;
  options.core.only_job = config.job_id;
  options.token = config.rdzv_token;
  options.listen_host = listen_host;
  options.listen_port = port;
  options.explain = std::move(explain);
  return Coordinator::Start(std::move(options), std::make_unique<store::MemoryStore>());
}

// Unset: nobody said; whose address it is decides.
std::optional<bool> ToldToHost(const LaunchConfig& config) {
  if (config.is_host.has_value()) {
    return config.is_host;
  }
  if (config.backend == RdzvBackend::kStatic && config.node_rank.has_value()) {
    return *config.node_rank == 0;
  }
  return std::nullopt;
}

// For a node that hosts because the endpoint's name maps to a loopback address
// here: on Debian a host's own name does, and elsewhere any name can by mistake.
std::string LoopbackHint(const std::string& host, const std::vector<SocketAddress>& addresses) {
  if (IsAddressLiteral(host) || IsLocalhostName(host) || OwnerOf(addresses) != Owner::kLoopback) {
    return "";
  }
  return absl::StrCat("the endpoint ", host, " resolves to ", ToText(addresses.front()),
                      " on this host, so this node hosts the rendezvous itself; if another node "
                      "should, its name must resolve to its real address here");
}

// A loopback endpoint listens there; any other on every interface, because the
// name may map to 127.0.1.1 here and to a real address elsewhere.
std::string ListenHost(const std::string& endpoint_host) {
  if (IsLocalhostName(endpoint_host)) {
    return "127.0.0.1";
  }
  return IsLoopbackLiteral(endpoint_host) ? endpoint_host : "::";
}

// What this node gives to the others.
absl::StatusOr<std::string> OwnAddress(const LaunchConfig& config, bool hosts,
                                       std::vector<SocketAddress> addresses, Patience patience) {
  if (!config.local_addr.empty()) {
    return config.local_addr;
  }
  if (addresses.empty()) {
    // Who was told to host can do so under a name that nobody knows yet.
    if (hosts) {
      patience.give_up_at = Instant{};
    }
    auto found = LookUp(config.endpoint_host, config.endpoint_port, patience);
    if (hosts && absl::IsNotFound(found.status())) {
      if (std::string outward = OutwardAddress(); !outward.empty()) {
        return outward;
      }
    }
    DDL_RETURN_IF_ERROR(found.status());
    addresses = *std::move(found);
  }
  return LocalAddressTowards(config.endpoint_host, addresses);
}

}  // namespace

absl::StatusOr<MeetingPlace> FindMeetingPlace(const LaunchConfig& config, const Patience& patience,
                                              std::function<void(const core::Explain&)> explain) {
  MeetingPlace place;
  if (config.endpoint_host.empty()) {
    place.own_address = config.local_addr.empty() ? "127.0.0.1" : config.local_addr;
    DDL_ASSIGN_OR_RETURN(place.coordinator, Host(config, "127.0.0.1", 0, std::move(explain)));
    place.endpoint = JoinHostPort("127.0.0.1", place.coordinator->port());
    return place;
  }
  place.endpoint = JoinHostPort(config.endpoint_host, config.endpoint_port);
  std::optional<bool> should_host = ToldToHost(config);
  std::vector<SocketAddress> addresses;
  if (!should_host.has_value() || (!*should_host && config.local_addr.empty())) {
    DDL_ASSIGN_OR_RETURN(addresses, LookUp(config.endpoint_host, config.endpoint_port, patience));
  }
  if (!should_host.has_value()) {
    should_host = OwnerOf(addresses) != Owner::kAnother;
    place.hint = LoopbackHint(config.endpoint_host, addresses);
  }
  if (*should_host) {
    const std::string listen_host = ListenHost(config.endpoint_host);
    auto coordinator = Host(config, listen_host, config.endpoint_port, std::move(explain));
    if (coordinator.ok()) {
      place.coordinator = *std::move(coordinator);
      place.is_open_to_network = !IsLoopbackLiteral(listen_host) && config.rdzv_token.empty();
      place.endpoint = JoinHostPort(listen_host == "::" ? config.endpoint_host : listen_host,
                                    place.coordinator->port());
    } else if (config.is_host.value_or(false) || config.endpoint_port == 0 ||
               !absl::IsAlreadyExists(coordinator.status())) {
      return coordinator.status();
    } else {
      place.port_was_taken = true;
    }
  }
  DDL_ASSIGN_OR_RETURN(place.own_address,
                       OwnAddress(config, *should_host, std::move(addresses), patience));
  return place;
}

}  // namespace ddl
