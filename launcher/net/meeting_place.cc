// Host the coordinator, or find it.
#include "launcher/net/meeting_place.h"

#include <utility>

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

absl::StatusOr<bool> ShouldHost(const LaunchConfig& config) {
  if (config.is_host.has_value()) {
    return *config.is_host;
  }
  if (config.backend == RdzvBackend::kStatic && config.node_rank.has_value()) {
    return *config.node_rank == 0;
  }
  return IsOwnAddress(config.endpoint_host);
}

// A loopback endpoint listens there; any other on every interface, because the
// name may map to 127.0.1.1 here and to a real address elsewhere.
std::string ListenHost(const std::string& endpoint_host) {
  if (endpoint_host == "localhost") {
    return "127.0.0.1";
  }
  return IsLoopbackLiteral(endpoint_host) ? endpoint_host : "::";
}

}  // namespace

absl::StatusOr<MeetingPlace> FindMeetingPlace(const LaunchConfig& config,
                                              std::function<void(const core::Explain&)> explain) {
  MeetingPlace place;
  if (config.endpoint_host.empty()) {
    place.own_address = config.local_addr.empty() ? "127.0.0.1" : config.local_addr;
    DDL_ASSIGN_OR_RETURN(place.coordinator, Host(config, "127.0.0.1", 0, std::move(explain)));
    place.endpoint = JoinHostPort("127.0.0.1", place.coordinator->port());
    return place;
  }
  DDL_ASSIGN_OR_RETURN(const bool should_host, ShouldHost(config));
  place.endpoint = JoinHostPort(config.endpoint_host, config.endpoint_port);
  if (should_host) {
    const std::string listen_host = ListenHost(config.endpoint_host);
    auto coordinator = Host(config, listen_host, config.endpoint_port, std::move(explain));
    if (coordinator.ok()) {
      place.coordinator = *std::move(coordinator);
      place.is_open_to_network = !IsLoopbackLiteral(listen_host) && config.rdzv_token.empty();
      place.endpoint = JoinHostPort(listen_host == "::" ? config.endpoint_host : listen_host,
                                    place.coordinator->port());
    } else if (config.is_host.value_or(false) || config.endpoint_port == 0) {
      return coordinator.status();
    } else {
      place.port_was_taken = true;
    }
  }
  if (config.local_addr.empty()) {
    DDL_ASSIGN_OR_RETURN(place.own_address,
                         LocalAddressTowards(config.endpoint_host, config.endpoint_port));
  } else {
    place.own_address = config.local_addr;
  }
  return place;
}

}  // namespace ddl
