// Whether an introduction is acceptable, by itself and beside the first one.
#include "agent/core/admission.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/core/plan_agreement.h"
#include "agent/core/wording.h"

namespace ddl::core {
namespace {

std::optional<Rejected> CheckText(const char* name, const std::string& text, std::size_t limit) {
  if (text.empty()) {
    return Rejected{Reason::kInvalid, absl::StrCat("the ", name, " is empty")};
  }
  if (text.size() > limit) {
    return Rejected{Reason::kLimit, absl::StrCat("the ", name, " has ", text.size(),
                                                 " bytes; the limit is ", limit)};
  }
  return std::nullopt;
}

std::optional<Rejected> CheckCount(const char* name, std::int32_t value, std::int32_t lowest,
                                   std::int32_t limit) {
  if (value < lowest) {
    return Rejected{Reason::kInvalid,
                    absl::StrCat(name, " is ", value, "; it must be ", lowest, " or more")};
  }
  if (value > limit) {
    return Rejected{Reason::kLimit, absl::StrCat(name, " is ", value, "; the limit is ", limit)};
  }
  return std::nullopt;
}

std::optional<Rejected> CheckWait(const char* name, Duration wait) {
  if (wait < Duration::zero()) {
    return Rejected{Reason::kInvalid, absl::StrCat("the ", name, " is negative")};
  }
  if (wait > kMaxWait) {
    return Rejected{Reason::kLimit, absl::StrCat("the ", name, " is ", InSeconds(wait),
                                                 "; the limit is ", InSeconds(kMaxWait))};
  }
  return std::nullopt;
}

std::optional<Rejected> CheckNumbers(const AgentConnected& hello) {
  if (auto bad = CheckCount("--nproc-per-node", hello.nproc, 1, limits::kMaxWorkersPerNode)) {
    return bad;
  }
  if (auto bad = CheckCount("--nnodes", hello.max_nodes, 1, limits::kMaxNodes)) {
    return bad;
  }
  if (auto bad = CheckCount("the least of --nnodes", hello.min_nodes, 1, limits::kMaxNodes)) {
    return bad;
  }
  if (hello.min_nodes > hello.max_nodes) {
    return Rejected{Reason::kInvalid, absl::StrCat("--nnodes=", hello.min_nodes, ":",
                                                   hello.max_nodes, ": the least is the larger")};
  }
  if (hello.max_restarts < 0) {
    return Rejected{Reason::kInvalid, absl::StrCat("--max-restarts is ", hello.max_restarts,
                                                   "; it must be 0 or more")};
  }
  if (hello.last_round < 0 || hello.last_round > limits::kMaxRounds || hello.restart_count < 0) {
    return Rejected{
        Reason::kInvalid,
        absl::StrCat("host ", hello.host, " says it comes from round ", hello.last_round,
                     ", restart ", hello.restart_count, "; that cannot be")};
  }
  if (const absl::Status plan = PlanAgreement::IsPossible(hello.last_plan); !plan.ok()) {
    return Rejected{
        Reason::kInvalid,
        absl::StrCat("host ", hello.host, " comes with a plan that cannot be: ", plan.message())};
  }
  if (hello.node_rank.has_value() &&
      (*hello.node_rank < 0 || *hello.node_rank >= hello.max_nodes)) {
    return Rejected{Reason::kNodeRankOutOfRange,
                    absl::StrCat("host ", hello.host, " asks for --node-rank=", *hello.node_rank,
                                 "; with --nnodes=", hello.max_nodes, " it must be in 0..",
                                 hello.max_nodes - 1)};
  }
  return std::nullopt;
}

std::optional<Rejected> CheckWorkerPorts(const AgentConnected& hello) {
  const std::size_t count = hello.worker_ports.size();
  if (count != 0 && count != static_cast<std::size_t>(hello.nproc)) {
    return Rejected{Reason::kInvalid, absl::StrCat("host ", hello.host, " gives ", count,
                                                   " worker ports for ", hello.nproc, " workers")};
  }
  for (const std::uint32_t port : hello.worker_ports) {
    if (port == 0 || port > UINT16_MAX) {
      return Rejected{Reason::kInvalid, absl::StrCat("host ", hello.host, " gives ", port,
                                                     " as a worker's port, which is none")};
    }
  }
  return std::nullopt;
}

std::string EnvFlag(const AgentConnected& hello) {
  return hello.worker_ports.empty() ? "neither tensorflow nor jax in --env"
                                    : "tensorflow or jax in --env";
}

std::string NodesFlag(const AgentConnected& hello) {
  return hello.min_nodes == hello.max_nodes
             ? absl::StrCat("--nnodes=", hello.max_nodes)
             : absl::StrCat("--nnodes=", hello.min_nodes, ":", hello.max_nodes);
}

// Of two on one host, which one.
std::string NameBeside(const AgentConnected& hello, const AgentConnected& other) {
  if (hello.host != other.host) {
    return hello.host;
  }
  return absl::StrCat(hello.host, " (",
                      hello.node_rank.has_value() ? absl::StrCat("--node-rank=", *hello.node_rank)
                                                  : ShortIncarnation(hello.agent.incarnation),
                      ")");
}

Rejected Differ(Reason reason, const AgentConnected& first, const std::string& first_value,
                const AgentConnected& hello, const std::string& value) {
  return Rejected{
      reason, absl::StrCat("host ", NameBeside(hello, first), " asks for ", value, ", but job '",
                           hello.agent.job_id, "' was started by host ", NameBeside(first, hello),
                           " with ", first_value, "; start every node with the same")};
}

std::string DescribePlan(const plan::Request& request) {
  return request.empty() ? "no plan" : plan::Describe(request);
}

}  // namespace

std::optional<Rejected> CheckHello(const AgentConnected& hello) {
  if (auto bad = CheckText("job id", hello.agent.job_id, limits::kMaxJobIdBytes)) {
    return bad;
  }
  if (auto bad = CheckText("incarnation", hello.agent.incarnation, limits::kMaxKeyBytes)) {
    return bad;
  }
  if (auto bad = CheckText("host name", hello.host, limits::kMaxHostBytes)) {
    return bad;
  }
  if (auto bad = CheckText("address", hello.address, limits::kMaxHostBytes)) {
    return bad;
  }
  if (auto bad = CheckWait("join timeout", hello.join_timeout)) {
    return bad;
  }
  if (auto bad = CheckWait("last call timeout", hello.last_call_timeout)) {
    return bad;
  }
  if (auto bad = CheckWait("stop grace", hello.stop_grace)) {
    return bad;
  }
  if (auto bad = CheckNumbers(hello)) {
    return bad;
  }
  return CheckWorkerPorts(hello);
}

std::optional<Rejected> CheckAgrees(const AgentConnected& first, const AgentConnected& hello) {
  if (first.min_nodes != hello.min_nodes || first.max_nodes != hello.max_nodes) {
    return Differ(Reason::kTermsDiffer, first, NodesFlag(first), hello, NodesFlag(hello));
  }
  if (first.max_restarts != hello.max_restarts) {
    return Differ(Reason::kTermsDiffer, first, absl::StrCat("--max-restarts=", first.max_restarts),
                  hello, absl::StrCat("--max-restarts=", hello.max_restarts));
  }
  if (first.worker_ports.empty() != hello.worker_ports.empty()) {
    return Differ(Reason::kTermsDiffer, first, EnvFlag(first), hello, EnvFlag(hello));
  }
  if (!(first.plan == hello.plan)) {
    return Differ(Reason::kPlanDiffers, first, DescribePlan(first.plan), hello,
                  DescribePlan(hello.plan));
  }
  return std::nullopt;
}

}  // namespace ddl::core
