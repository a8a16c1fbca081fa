// Membership and meeting place: see meeting.h.
#include "launcher/cli/meeting.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/ids.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/rdzv_conf.h"
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

// ---- who ----------------------------------------------------------------------

absl::Status ApplyNodes(const Arguments& arguments, LaunchConfig& config) {
  DDL_ASSIGN_OR_RETURN(const std::optional<NodeRange> nodes,
                       ReadFlag(arguments, FlagId::kNnodes, ParseNodeRange));
  if (!nodes.has_value()) {
    return absl::OkStatus();
  }
  config.min_nodes = nodes->min;
  config.max_nodes = nodes->max;
  return absl::OkStatus();
}

absl::Status CheckNodeRank(const RawValue& raw, std::int64_t rank, const LaunchConfig& config) {
  if (rank >= config.max_nodes) {
    return BadValue(
        raw, absl::StrCat(
                 "out of range: --nnodes=",
                 config.min_nodes == config.max_nodes ? "" : absl::StrCat(config.min_nodes, ":"),
                 config.max_nodes, " has node ranks 0 to ", config.max_nodes - 1));
  }
  return absl::OkStatus();
}

// --node-rank, else --rdzv-conf rank=.
absl::Status ApplyNodeRank(const Arguments& arguments, const RdzvConf& conf, LaunchConfig& config) {
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

// MASTER_ADDR and MASTER_PORT as far as the user chose them. The port at which
// the nodes meet is taken by the coordinator; it cannot be the workers' too.
void ApplyMaster(const MasterFlags& master, LaunchConfig& config, Notices& notices) {
  config.master_addr = master.address;
  config.master_port = master.port;
  const bool same_host = master.address.empty() || master.address == config.endpoint_host;
  if (!config.endpoint_host.empty() && same_host && master.port == config.endpoint_port) {
    config.master_port = 0;
    notices.push_back(
        {Notice::Level::kInfo,
         absl::StrCat("the nodes meet at port ", config.endpoint_port,
                      "; workers get a free one as MASTER_PORT (to choose it, let the nodes meet "
                      "elsewhere: --rdzv-endpoint=HOST:PORT)")});
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
  // Static: this is node 0 unless said otherwise, as in torchrun. Of an elastic
  // job any of its nodes may be there, so a rank is only what was asked for.
  if (is_static && !alone && config.min_nodes == config.max_nodes) {
    config.node_rank = config.node_rank.value_or(0);
  }
  return absl::OkStatus();
}

void ApplyConf(const RdzvConf& conf, LaunchConfig& config, Notices& notices) {
  const Heartbeats heartbeats = conf.heartbeats.value_or(Heartbeats{});
  config.join_timeout = conf.join_timeout.value_or(config.join_timeout);
  config.last_call_timeout = conf.last_call_timeout.value_or(config.last_call_timeout);
  config.close_timeout = conf.close_timeout.value_or(config.close_timeout);
  config.heartbeat_interval = heartbeats.interval;
  config.heartbeat_timeout = heartbeats.timeout;
  config.is_host = conf.is_host;
  for (const std::string& remark : conf.remarks) {
    notices.push_back({Notice::Level::kDebug, remark});
  }
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
  return ApplyNodeRank(arguments, RdzvConf{}, config);
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
  DDL_ASSIGN_OR_RETURN(const std::optional<RdzvConf> given_conf,
                       ReadFlag(arguments, FlagId::kRdzvConf, ParseRdzvConf));
  const RdzvConf conf = given_conf.value_or(RdzvConf{});
  config.backend = backend.value_or(config.backend);
  config.job_id = job_id.value_or(config.job_id);
  ApplyConf(conf, config, notices);
  DDL_RETURN_IF_ERROR(ApplyNodeRank(arguments, conf, config));
  return ApplyEndpoint(arguments, config, notices);
}

}  // namespace ddl::cli
