// Membership and meeting place: see meeting.h.
#include "launcher/cli/meeting.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/ids.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

constexpr std::uint16_t kDynamicPort = 29400;  // torchrun's default for c10d
constexpr std::uint16_t kStaticPort = 29500;   // and for static
constexpr std::int64_t kMaxPort = std::numeric_limits<std::uint16_t>::max();

// ---- values of their own kind -------------------------------------------------

absl::StatusOr<RdzvBackend> ParseBackend(std::string_view text) {
  if (text == "static") {
    return RdzvBackend::kStatic;
  }
  if (text == "c10d") {
    return RdzvBackend::kDynamic;
  }
  if (text == "etcd" || text == "etcd-v2") {
    return absl::InvalidArgumentError(
        "no etcd is needed here: one of the nodes serves the others; use --rdzv-backend=c10d "
        "--rdzv-endpoint=HOST:PORT with the host of any one node");
  }
  return absl::InvalidArgumentError("must be static or c10d");
}

absl::StatusOr<std::string> ParseJobId(std::string_view text) {
  const bool printable =
      std::none_of(text.begin(), text.end(), [](unsigned char c) { return std::iscntrl(c) != 0; });
  if (text.empty() || text.size() > limits::kMaxJobIdBytes || !printable) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be 1 to ", limits::kMaxJobIdBytes, " printable characters"));
  }
  return std::string(text);
}

absl::StatusOr<std::int64_t> ParsePort(std::string_view text) {
  return ParseInteger(text, 1, kMaxPort);
}

// ---- --rdzv-conf --------------------------------------------------------------

struct Conf {
  std::optional<Duration> join_timeout;
  std::optional<Duration> timeout;  // the static backend's name for it
  std::optional<Duration> heartbeat_timeout;
  std::optional<bool> is_host;
  std::optional<std::int64_t> rank;
};

template <typename T, typename Target>
absl::Status Store(absl::StatusOr<T> value, Target& target) {
  DDL_RETURN_IF_ERROR(value.status());
  target = *std::move(value);
  return absl::OkStatus();
}

absl::Status ApplyConfEntry(const std::string& key, const std::string& value, Conf& conf) {
  if (key == "join_timeout") {
    return Store(ParseSeconds(value, Zero::kRefused), conf.join_timeout);
  }
  if (key == "timeout") {
    return Store(ParseSeconds(value, Zero::kRefused), conf.timeout);
  }
  if (key == "heartbeat_timeout") {
    return Store(ParseSeconds(value, Zero::kRefused), conf.heartbeat_timeout);
  }
  if (key == "is_host") {
    return Store(ParseBool(value), conf.is_host);
  }
  if (key == "rank") {
    return Store(ParseInteger(value, 0, limits::kMaxNodes - 1), conf.rank);
  }
  if (key == "use_libuv") {
    return ParseBool(value).status();
  }
  if (key == "store_type") {
    return value == "tcp" ? absl::OkStatus()
                          : absl::InvalidArgumentError("must be tcp: nodes meet over the network");
  }
  // Seconds and counts that nothing here needs: checked, then left alone.
  return ParseSeconds(value, Zero::kAllowed).status();
}

absl::StatusOr<Conf> ParseConf(std::string_view text) {
  constexpr std::array<std::string_view, 12> kKeys = {"join_timeout",
                                                      "last_call_timeout",
                                                      "close_timeout",
                                                      "heartbeat_timeout",
                                                      "keep_alive_interval",
                                                      "keep_alive_max_attempt",
                                                      "read_timeout",
                                                      "is_host",
                                                      "store_type",
                                                      "use_libuv",
                                                      "timeout",
                                                      "rank"};
  std::map<std::string, std::string> entries;
  DDL_ASSIGN_OR_RETURN(entries, ParseKeyValues(text));
  Conf conf;
  for (const auto& [key, value] : entries) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      const std::string nearest = NearestName(key, kKeys);
      return absl::InvalidArgumentError(
          absl::StrCat("no such key: ", key,
                       nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
    }
    if (const absl::Status status = ApplyConfEntry(key, value, conf); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(key, " ", std::string(status.message())));
    }
  }
  return conf;
}

// ---- who ----------------------------------------------------------------------

absl::Status ApplyNodes(const Arguments& arguments, LaunchConfig& config) {
  DDL_ASSIGN_OR_RETURN(const std::optional<NodeRange> nodes,
                       ReadFlag(arguments, FlagId::kNnodes, ParseNodeRange));
  if (!nodes.has_value()) {
    return absl::OkStatus();
  }
  if (nodes->min != nodes->max) {
    return BadValue(*arguments.Find(FlagId::kNnodes),
                    absl::StrCat("elastic membership (MIN below MAX) is not in this version; give "
                                 "one number, such as --nnodes=",
                                 nodes->max));
  }
  config.min_nodes = nodes->min;
  config.max_nodes = nodes->max;
  return absl::OkStatus();
}

absl::Status CheckNodeRank(const RawValue& raw, std::int64_t rank, const LaunchConfig& config) {
  if (rank >= config.max_nodes) {
    return BadValue(raw, absl::StrCat("out of range: --nnodes=", config.max_nodes,
                                      " has node ranks 0 to ", config.max_nodes - 1));
  }
  return absl::OkStatus();
}

// --node-rank, else --rdzv-conf rank=.
absl::Status ApplyNodeRank(const Arguments& arguments, const Conf& conf, LaunchConfig& config) {
  DDL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> given,
                       ReadFlag(arguments, FlagId::kNodeRank, [](std::string_view text) {
                         return ParseInteger(text, 0, limits::kMaxNodes - 1);
                       }));
  if (given.has_value()) {
    DDL_RETURN_IF_ERROR(CheckNodeRank(*arguments.Find(FlagId::kNodeRank), *given, config));
  }
  if (conf.rank.has_value()) {
    const RawValue& raw = *arguments.Find(FlagId::kRdzvConf);
    DDL_RETURN_IF_ERROR(CheckNodeRank(raw, *conf.rank, config));
    if (given.has_value() && *given != *conf.rank) {
      return BadValue(raw, absl::StrCat("its rank contradicts ",
                                        arguments.Find(FlagId::kNodeRank)->origin, "=", *given));
    }
  }
  const std::optional<std::int64_t> rank = given.has_value() ? given : conf.rank;
  if (rank.has_value()) {
    config.node_rank = static_cast<std::int32_t>(*rank);
  }
  return absl::OkStatus();
}

// ---- where --------------------------------------------------------------------

struct MasterFlags {
  std::string address;     // empty: not given
  std::uint16_t port = 0;  // 0: not given
};

absl::StatusOr<MasterFlags> ReadMasterFlags(const Arguments& arguments) {
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> address,
                       ReadFlag(arguments, FlagId::kMasterAddr, ParseHost));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> port,
                       ReadFlag(arguments, FlagId::kMasterPort, ParsePort));
  return MasterFlags{address.value_or(""), static_cast<std::uint16_t>(port.value_or(0))};
}

absl::Status NoMeetingPlace(const Arguments& arguments, const LaunchConfig& config) {
  const RawValue& nodes = *arguments.Find(FlagId::kNnodes);
  return BadValue(
      nodes, config.backend == RdzvBackend::kStatic
                 ? "the nodes need a place to meet: give --rdzv-endpoint=HOST[:PORT] with node 0's "
                   "host, the same on every node (or --master-addr, or --rdzv-backend=c10d)"
                 : "the nodes need a place to meet: give --rdzv-endpoint=HOST[:PORT] with the host "
                   "of any one node, the same on every node");
}

// Static: node 0 serves, as in torchrun, whatever its address looks like.
void ApplyStaticRoles(LaunchConfig& config) {
  config.node_rank = config.node_rank.value_or(0);
  if (!config.is_host.has_value()) {
    config.is_host = *config.node_rank == 0;
  }
}

// MASTER_ADDR and MASTER_PORT as far as the user chose them. The port at which
// the nodes meet is taken by the coordinator; it cannot be the workers' too.
void ApplyMaster(const MasterFlags& master, LaunchConfig& config, Notices& notices) {
  config.master_addr = master.address;
  config.master_port = master.port;
  const bool same_host = master.address.empty() || master.address == config.endpoint_host;
  if (!config.endpoint_host.empty() && same_host && master.port == config.endpoint_port) {
    config.master_port = 0;
    notices.push_back(
        {Notice::Level::kDebug, absl::StrCat("the nodes meet at port ", config.endpoint_port,
                                             "; workers get a free one as MASTER_PORT")});
  }
}

absl::Status ApplyEndpoint(const Arguments& arguments, LaunchConfig& config, Notices& notices) {
  const bool is_static = config.backend == RdzvBackend::kStatic;
  const std::uint16_t default_port = is_static ? kStaticPort : kDynamicPort;
  DDL_ASSIGN_OR_RETURN(const std::optional<Endpoint> endpoint,
                       ReadFlag(arguments, FlagId::kRdzvEndpoint, [=](std::string_view text) {
                         return ParseEndpoint(text, default_port);
                       }));
  DDL_ASSIGN_OR_RETURN(const MasterFlags master, ReadMasterFlags(arguments));
  const bool alone = config.max_nodes == 1;
  if (endpoint.has_value() && endpoint->port == 0 && !alone) {
    return BadValue(*arguments.Find(FlagId::kRdzvEndpoint),
                    "port 0 (any free port) is for one node; the others could not know it");
  }
  if (endpoint.has_value() && endpoint->port != 0) {
    config.endpoint_host = endpoint->host;
    config.endpoint_port = endpoint->port;
  } else if (!alone && is_static && !master.address.empty()) {
    config.endpoint_host = master.address;
    config.endpoint_port = master.port == 0 ? kStaticPort : master.port;
  } else if (!alone) {
    return NoMeetingPlace(arguments, config);
  }
  if (is_static) {
    ApplyMaster(master, config, notices);
  } else if (!master.address.empty() || master.port != 0) {
    notices.push_back({Notice::Level::kWarning,
                       "--master-addr and --master-port have no effect with c10d, as in torchrun: "
                       "rank 0's node provides both"});
  }
  if (is_static && !alone) {
    ApplyStaticRoles(config);
  }
  return absl::OkStatus();
}

absl::Status ApplyLocalAddr(const Arguments& arguments, LaunchConfig& config) {
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> address,
                       ReadFlag(arguments, FlagId::kLocalAddr, ParseHost));
  config.local_addr = address.value_or("");
  return absl::OkStatus();
}

// One node, nobody to meet, an id of its own; other --rdzv-* flags are not read.
absl::Status ApplyStandalone(const Arguments& arguments, LaunchConfig& config) {
  if (config.max_nodes != 1) {
    return BadValue(*arguments.Find(FlagId::kNnodes), "--standalone is for one node");
  }
  DDL_ASSIGN_OR_RETURN(const MasterFlags master, ReadMasterFlags(arguments));
  config.master_addr = master.address;
  config.master_port = master.port;
  config.job_id = NewRandomId();
  return ApplyNodeRank(arguments, Conf{}, config);
}

}  // namespace

absl::Status ApplyMeetingFlags(const Arguments& arguments, LaunchConfig& config, Notices& notices) {
  DDL_RETURN_IF_ERROR(ApplyNodes(arguments, config));
  DDL_RETURN_IF_ERROR(ApplyLocalAddr(arguments, config));
  DDL_ASSIGN_OR_RETURN(const std::optional<bool> standalone,
                       ReadFlag(arguments, FlagId::kStandalone, ParseBool));
  if (standalone.value_or(false)) {
    return ApplyStandalone(arguments, config);
  }
  DDL_ASSIGN_OR_RETURN(const std::optional<RdzvBackend> backend,
                       ReadFlag(arguments, FlagId::kRdzvBackend, ParseBackend));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::string> job_id,
                       ReadFlag(arguments, FlagId::kRdzvId, ParseJobId));
  DDL_ASSIGN_OR_RETURN(const std::optional<Conf> given_conf,
                       ReadFlag(arguments, FlagId::kRdzvConf, ParseConf));
  const Conf conf = given_conf.value_or(Conf{});
  config.backend = backend.value_or(config.backend);
  config.job_id = job_id.value_or(config.job_id);
  config.join_timeout = conf.join_timeout.value_or(conf.timeout.value_or(config.join_timeout));
  config.heartbeat_timeout = conf.heartbeat_timeout.value_or(config.heartbeat_timeout);
  config.is_host = conf.is_host;
  DDL_RETURN_IF_ERROR(ApplyNodeRank(arguments, conf, config));
  return ApplyEndpoint(arguments, config, notices);
}

}  // namespace ddl::cli
