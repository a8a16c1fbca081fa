// The names and where their values come from; see the header.
#include "launcher/worker/worker_env.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "launcher/worker/framework_env.h"

namespace ddl {
namespace {

// Stale in the parent, and not always set again below; and a secret that is for
// ddlaunch alone.
constexpr std::array<std::string_view, 18> kNotPassedOn = {
    "DDL_GLOBAL_BATCH_SIZE", "DDL_MICRO_BATCH_SIZE", "DDL_GRAD_ACCUM_STEPS", "DDL_RANK_BATCH_SIZE",
    "DDL_LEARNING_RATE",     "DDL_WARMUP_STEPS",     "DDL_WARMUP_SAMPLES",   "DDL_TOTAL_STEPS",
    "DDL_TOTAL_SAMPLES",     "DDL_LR_DECAY",         "DDL_ADAM_BETA1",       "DDL_ADAM_BETA2",
    "DDL_ADAM_EPS",          "DDL_WARMUP_START_LR",  "DDL_LR_DECAY_SAMPLES", "DDL_LR_DECAY_FACTOR",
    "DDL_PLAN_HASH",         "DDL_RDZV_TOKEN"};

std::string_view NameOf(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

bool Has(const std::vector<std::string>& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [name](const std::string& entry) { return NameOf(entry) == name; });
}

// The shortest text that reads back as the same number.
std::string ShortestText(double value) {
  constexpr std::size_t kLongestDouble = 32;
  std::array<char, kLongestDouble> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

// Named as in torch/distributed/elastic/agent/server/local_elastic_agent.py.
Variables TorchrunVariables(const LaunchConfig& config, const RoundInfo& round,
                            std::int32_t local_rank, const std::string& error_file) {
  const std::string rank = std::to_string(round.first_rank + local_rank);
  const std::string world_size = std::to_string(round.world_size);
  const std::string node_rank = std::to_string(round.node_rank);
  return {
      {"RANK", rank},
      {"LOCAL_RANK", config.virtual_local_rank ? "0" : std::to_string(local_rank)},
      {"WORLD_SIZE", world_size},
      {"LOCAL_WORLD_SIZE", std::to_string(round.nproc)},
      {"GROUP_RANK", node_rank},
      {"GROUP_WORLD_SIZE", std::to_string(round.num_nodes)},
      {"NODE_RANK", node_rank},
      {"ROLE_NAME", config.role},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world_size},
      {"MASTER_ADDR", round.master_addr},
      {"MASTER_PORT", std::to_string(round.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(round.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(round.max_restarts)},
      {"TORCHELASTIC_RUN_ID", round.job_id},
      // Who serves the store at MASTER_ADDR:MASTER_PORT: the node of rank 0, or
      // rank 0 itself.
      {"TORCHELASTIC_USE_AGENT_STORE", config.worker_store ? "False" : "True"},
      {"TORCHELASTIC_ERROR_FILE", error_file},
  };
}

// What is not known has no variable.
void AppendPlan(const plan::Plan& plan, std::int32_t rank, Variables& out) {
  out.emplace_back("DDL_GLOBAL_BATCH_SIZE", std::to_string(plan.global_batch_size));
  out.emplace_back("DDL_MICRO_BATCH_SIZE", std::to_string(plan.micro_batch_size));
  out.emplace_back("DDL_GRAD_ACCUM_STEPS", std::to_string(plan.grad_accum_steps));
  out.emplace_back("DDL_RANK_BATCH_SIZE", std::to_string(plan::RankBatchSize(plan, rank)));
  if (plan.learning_rate.has_value()) {
    out.emplace_back("DDL_LEARNING_RATE", ShortestText(*plan.learning_rate));
  }
  out.emplace_back("DDL_WARMUP_STEPS", std::to_string(plan.warmup_steps));
  out.emplace_back("DDL_WARMUP_SAMPLES", std::to_string(plan.warmup_samples));
  if (plan.warmup_samples > 0) {
    out.emplace_back("DDL_WARMUP_START_LR", ShortestText(plan.warmup_start_lr));
  }
  if (plan.total_samples > 0) {
    out.emplace_back("DDL_TOTAL_STEPS", std::to_string(plan.total_steps));
    out.emplace_back("DDL_TOTAL_SAMPLES", std::to_string(plan.total_samples));
  }
  out.emplace_back("DDL_LR_DECAY", plan::ToString(plan.lr_decay));
  if (plan.lr_decay == plan::LrDecay::kStep) {
    out.emplace_back("DDL_LR_DECAY_SAMPLES", std::to_string(plan.lr_decay_samples));
    out.emplace_back("DDL_LR_DECAY_FACTOR", ShortestText(plan.lr_decay_factor));
  }
  if (plan.adam.has_value()) {
    out.emplace_back("DDL_ADAM_BETA1", ShortestText(plan.adam->beta1));
    out.emplace_back("DDL_ADAM_BETA2", ShortestText(plan.adam->beta2));
    out.emplace_back("DDL_ADAM_EPS", ShortestText(plan.adam->eps));
  }
  out.emplace_back("DDL_PLAN_HASH", plan::Hash(plan));
}

void AppendOwnVariables(const RoundInfo& round, std::int32_t local_rank, Variables& out) {
  out.emplace_back("DDL_GATEWAY", round.gateway);
  out.emplace_back("DDL_LOCAL_RANK", std::to_string(local_rank));  // also where LOCAL_RANK is 0
  out.emplace_back("DDL_ROUND", std::to_string(round.round));
  out.emplace_back("DDL_JOB_ID", round.job_id);
  if (round.plan.has_value()) {
    AppendPlan(*round.plan, round.first_rank + local_rank, out);
  }
}

void AppendDevices(const WorkerPlace& place, Variables& out) {
  for (const std::string& entry : place.devices) {
    const std::string_view name = NameOf(entry);
    out.emplace_back(name, entry.substr(name.size() + 1));
  }
}

// Set only where the user did not. `threads`: how many fit this worker's CPUs.
void AppendDefaults(const std::vector<std::string>& parent, std::int32_t nproc,
                    std::int32_t threads, Variables& out) {
  if (!Has(parent, "TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    out.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  }
  // Without it each worker would start a thread for every CPU of the node.
  if (nproc > 1 && !Has(parent, "OMP_NUM_THREADS")) {
    out.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
}

}  // namespace

const WorkerPlace& PlaceOf(const LaunchConfig& config, std::int32_t local_rank) {
  static const WorkerPlace anywhere;
  const auto index = static_cast<std::size_t>(local_rank);
  return index < config.places.size() ? config.places[index] : anywhere;
}

std::vector<std::string> WorkerEnvironment(const std::vector<std::string>& parent,
                                           const LaunchConfig& config, const RoundInfo& round,
                                           std::int32_t local_rank, const std::string& error_file,
                                           std::int32_t usable_cpus) {
  Variables own = TorchrunVariables(config, round, local_rank, error_file);
  const WorkerPlace& place = PlaceOf(config, local_rank);
  AppendOwnVariables(round, local_rank, own);
  AppendDevices(place, own);
  for (auto& variable : FrameworkVariables(parent, config, round, local_rank)) {
    own.push_back(std::move(variable));
  }
  AppendDefaults(parent, round.nproc,
                 place.threads > 0 ? place.threads : std::max(1, usable_cpus / round.nproc), own);

  std::unordered_set<std::string_view> replaced(kNotPassedOn.begin(), kNotPassedOn.end());
  for (const auto& [name, value] : own) {
    replaced.insert(name);
  }
  std::vector<std::string> environment;
  environment.reserve(parent.size() + own.size());
  for (const std::string& entry : parent) {
    const std::string_view name = NameOf(entry);
    if (replaced.find(name) == replaced.end() && !Misleads(config.frameworks, round, name)) {
      environment.push_back(entry);
    }
  }
  for (const auto& [name, value] : own) {
    std::string entry(name);
    entry.append("=").append(value);
    environment.push_back(std::move(entry));
  }
  return environment;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

}  // namespace ddl
