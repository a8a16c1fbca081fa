// Reads and checks the worker's environment.
#include "worker_sdk/src/environment.h"

#include <charconv>
#include <limits>
#include <system_error>

#include "agent/base/limits.h"
#include "agent/base/status_macros.h"

namespace ddl::internal {
namespace {

constexpr std::int64_t kMaxWorld =
    std::int64_t{limits::kMaxNodes} * std::int64_t{limits::kMaxWorkersPerNode};
constexpr std::int64_t kMaxPort = 65'535;

// Reads a variable into `*value` where it is set and not empty; tells whether
// it was.
template <typename Int>
absl::StatusOr<bool> ReadInt(const Lookup& lookup, const char* name, std::int64_t least,
                             std::int64_t most, Int* value) {
  const std::optional<std::string> text = lookup(name);
  if (!text.has_value() || text->empty()) {
    return false;
  }
  std::int64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || stop != end || number < least || number > most) {
    return absl::InvalidArgumentError("environment: " + std::string(name) + "=\"" + *text +
                                      "\" is not a number of " + std::to_string(least) + " to " +
                                      std::to_string(most));
  }
  *value = static_cast<Int>(number);
  return true;
}

absl::Status ReadNumbers(const Lookup& lookup, Environment* environment, bool* has_local_rank,
                         bool* has_round) {
  constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
  Membership& m = environment->membership;
  DDL_ASSIGN_OR_RETURN(environment->has_world_size,
                       ReadInt(lookup, "WORLD_SIZE", 1, kMaxWorld, &m.world_size));
  DDL_ASSIGN_OR_RETURN(environment->has_rank, ReadInt(lookup, "RANK", 0, kMaxWorld - 1, &m.rank));
  // Under --virtual-local-rank every LOCAL_RANK is 0.
  const char* const local_rank =
      lookup("DDL_LOCAL_RANK").has_value() ? "DDL_LOCAL_RANK" : "LOCAL_RANK";
  DDL_ASSIGN_OR_RETURN(*has_local_rank, ReadInt(lookup, local_rank, 0,
                                                limits::kMaxWorkersPerNode - 1, &m.local_rank));
  DDL_ASSIGN_OR_RETURN(*has_round, ReadInt(lookup, "DDL_ROUND", 0,
                                           std::numeric_limits<std::int64_t>::max(), &m.round));
  // What follows only describes; a missing one keeps its default.
  DDL_RETURN_IF_ERROR(
      ReadInt(lookup, "LOCAL_WORLD_SIZE", 1, limits::kMaxWorkersPerNode, &m.local_world_size)
          .status());
  DDL_RETURN_IF_ERROR(
      ReadInt(lookup, "GROUP_RANK", 0, limits::kMaxNodes - 1, &m.node_rank).status());
  DDL_RETURN_IF_ERROR(
      ReadInt(lookup, "GROUP_WORLD_SIZE", 1, limits::kMaxNodes, &m.num_nodes).status());
  DDL_RETURN_IF_ERROR(
      ReadInt(lookup, "TORCHELASTIC_RESTART_COUNT", 0, kMaxCount, &m.restart_count).status());
  return ReadInt(lookup, "MASTER_PORT", 0, kMaxPort, &m.master_port).status();
}

std::string FirstOf(const Lookup& lookup, std::initializer_list<const char*> names,
                    const std::string& otherwise) {
  for (const char* const name : names) {
    if (std::optional<std::string> text = lookup(name); text.has_value() && !text->empty()) {
      return *text;
    }
  }
  return otherwise;
}

}  // namespace

absl::StatusOr<Environment> ReadEnvironment(const Lookup& lookup) {
  Environment environment;
  bool has_local_rank = false;
  bool has_round = false;
  DDL_RETURN_IF_ERROR(ReadNumbers(lookup, &environment, &has_local_rank, &has_round));
  Membership& m = environment.membership;
  m.job_id = FirstOf(lookup, {"DDL_JOB_ID", "TORCHELASTIC_RUN_ID"}, m.job_id);
  m.master_addr = FirstOf(lookup, {"MASTER_ADDR"}, m.master_addr);
  environment.gateway = FirstOf(lookup, {"DDL_GATEWAY"}, "");
  if (m.rank >= m.world_size) {
    return absl::InvalidArgumentError("environment: RANK=" + std::to_string(m.rank) +
                                      " is not below WORLD_SIZE=" + std::to_string(m.world_size));
  }
  m.has_launcher = !environment.gateway.empty();
  if (!m.has_launcher) {
    if (m.world_size > 1) {
      return absl::FailedPreconditionError(
          "environment: WORLD_SIZE=" + std::to_string(m.world_size) +
          " but DDL_GATEWAY is not set, so the ranks cannot find each other; start the program "
          "with ddlaunch, or unset RANK and WORLD_SIZE to run it alone");
    }
    return environment;
  }
  if (!has_local_rank || !has_round) {
    return absl::FailedPreconditionError(
        "environment: DDL_GATEWAY is set but " +
        std::string(!has_local_rank ? "LOCAL_RANK" : "DDL_ROUND") +
        " is not; ddlaunch sets both: does a wrapper script drop variables?");
  }
  return environment;
}

absl::Status CheckAgainst(const Environment& environment, const Membership& registered) {
  const Membership& told = environment.membership;
  const auto differ = [](const char* name, int in_environment, int at_agent) {
    return absl::FailedPreconditionError("environment: " + std::string(name) + "=" +
                                         std::to_string(in_environment) + " but the agent says " +
                                         std::to_string(at_agent) +
                                         "; does a script change it, or is it another job's?");
  };
  if (environment.has_rank && told.rank != registered.rank) {
    return differ("RANK", told.rank, registered.rank);
  }
  if (environment.has_world_size && told.world_size != registered.world_size) {
    return differ("WORLD_SIZE", told.world_size, registered.world_size);
  }
  return absl::OkStatus();
}

}  // namespace ddl::internal
