// The table, a function for each framework, and what must not leak through.
#include "launcher/worker/framework_env.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/base/host.h"
#include "agent/base/limits.h"
#include "nlohmann/json.hpp"

namespace ddl {
namespace {

// One worker of one round.
struct Place {
  const std::vector<std::string>& parent;
  const LaunchConfig& config;
  const RoundInfo& round;
  std::int32_t local_rank;

  [[nodiscard]] std::int32_t rank() const { return round.first_rank + local_rank; }
  // As programs choose a GPU by it: the first where each sees one only.
  [[nodiscard]] std::string local_rank_text() const {
    return config.virtual_local_rank ? "0" : std::to_string(local_rank);
  }
};

// A name, or with a * at its end all that begin so.
using Names = std::vector<std::string_view>;

struct Framework {
  bool Frameworks::*chosen;
  Variables (*variables)(const Place& place);
  bool needs_worker_ports;
  // Dropped from the parent's environment: where the framework is chosen; and,
  // as they number one process, wherever a job has more than one worker.
  Names dropped_if_chosen;
  Names dropped_in_a_world;
};

std::optional<std::string> Find(const std::vector<std::string>& environment,
                                std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

// ---- torch ------------------------------------------------------------------

constexpr char kAccumulation[] = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS";
constexpr char kUseCpu[] = "ACCELERATE_USE_CPU";

Variables ForTorch(const Place& place) {
  Variables out;
  // Accelerate takes the same steps of the same size on every rank.
  if (place.round.plan.has_value() && place.round.plan->even()) {
    out.emplace_back(kAccumulation, std::to_string(place.round.plan->grad_accum_steps));
  }
  if (place.round.world_size > 1 && place.round.devices.no_accelerator &&
      !Find(place.parent, kUseCpu).has_value()) {
    out.emplace_back(kUseCpu, "true");
  }
  return out;
}

// ---- tensorflow -------------------------------------------------------------

Variables ForTensorFlow(const Place& place) {
  nlohmann::json config;
  config["cluster"]["worker"] = *place.round.worker_addresses;
  config["task"]["type"] = "worker";
  config["task"]["index"] = place.rank();
  return {{"TF_CONFIG", config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}};
}

// ---- jax --------------------------------------------------------------------

constexpr char kLocalDevices[] = "JAX_LOCAL_DEVICE_IDS";

std::string CountedUpTo(std::int32_t count) {
  std::string out;
  for (std::int32_t i = 0; i < count; ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", i);
  }
  return out;
}

// Else JAX would take the GPU of the local rank's number, also of a worker that
// is alone on its node or sees one GPU only.
std::optional<std::string> LocalDevices(const Place& place) {
  if (place.config.virtual_local_rank || place.round.nproc > 1) {
    return place.local_rank_text();
  }
  if (auto users = Find(place.parent, kLocalDevices)) {
    return users;
  }
  return place.round.devices.num_gpus > 1 ? std::optional(CountedUpTo(place.round.devices.num_gpus))
                                          : std::nullopt;
}

bool IsLoopback(const std::string& address) {
  return address == "127.0.0.1" || address == "::1";
}

Variables ForJax(const Place& place) {
  const std::string address = JoinHostPort(place.round.master_addr, place.round.first_worker_port);
  const std::string rank = std::to_string(place.rank());
  const std::string size = std::to_string(place.round.world_size);
  Variables out = {
      {"JAX_COORDINATOR_ADDRESS", address},
      {"JAX_NUM_PROCESSES", size},
      {"JAX_PROCESS_ID", rank},
      {"OMPI_MCA_orte_hnp_uri", "ddlaunch"},
      {"OMPI_COMM_WORLD_RANK", rank},
      {"OMPI_COMM_WORLD_SIZE", size},
      {"OMPI_COMM_WORLD_LOCAL_RANK", place.local_rank_text()},
  };
  if (IsLoopback(place.round.master_addr)) {  // else JAX listens on every interface
    out.emplace_back("JAX_COORDINATOR_BIND_ADDRESS", address);
  }
  if (auto devices = LocalDevices(place)) {
    out.emplace_back(kLocalDevices, *std::move(devices));
  }
  return out;
}

// ---- mpi --------------------------------------------------------------------

Variables ForMpi(const Place& place) {
  const std::string rank = std::to_string(place.rank());
  const std::string size = std::to_string(place.round.world_size);
  const std::string local_rank = place.local_rank_text();
  const std::string local_size = std::to_string(place.round.nproc);
  return {
      {"OMPI_COMM_WORLD_RANK", rank},
      {"OMPI_COMM_WORLD_SIZE", size},
      {"OMPI_COMM_WORLD_LOCAL_RANK", local_rank},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size},
      {"OMPI_COMM_WORLD_NODE_RANK", local_rank},
      {"HOROVOD_RANK", rank},
      {"HOROVOD_SIZE", size},
      {"HOROVOD_LOCAL_RANK", local_rank},
      {"HOROVOD_LOCAL_SIZE", local_size},
  };
}

// ---- the table --------------------------------------------------------------

const std::array<Framework, 4>& Table() {
  static const auto& table = *new std::array<Framework, 4>{{
      {.chosen = &Frameworks::torch,
       .variables = ForTorch,
       .needs_worker_ports = false,
       .dropped_if_chosen = {},
       .dropped_in_a_world = {}},
      {.chosen = &Frameworks::tensorflow,
       .variables = ForTensorFlow,
       .needs_worker_ports = true,
       .dropped_if_chosen = {},
       .dropped_in_a_world = {"TF_CONFIG"}},
      {.chosen = &Frameworks::jax,
       .variables = ForJax,
       .needs_worker_ports = true,
       .dropped_if_chosen = {"JAX_COORDINATOR_*", "JAX_LOCAL_DEVICE_IDS", "SLURM_NTASKS",
                             "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"},
       .dropped_in_a_world = {"JAX_PROCESS_ID", "JAX_NUM_PROCESSES"}},
      {.chosen = &Frameworks::mpi,
       .variables = ForMpi,
       .needs_worker_ports = false,
       .dropped_if_chosen = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE",
                             "SLURM_TASKS_PER_NODE"},
       .dropped_in_a_world = {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_*", "HOROVOD_CROSS_*",
                              "HOROVOD_GLOO_RENDEZVOUS_*"}},
  }};
  return table;
}

// Of the launchers under which ddlaunch itself may run: which of their processes
// it is. Open MPI's mpirun also forbids its own processes to run alone (ess).
const Names& OtherLaunchers() {
  static const auto& names = *new Names{"OMPI_COMM_WORLD_*",
                                        "OMPI_MCA_orte_*",
                                        "OMPI_MCA_ess*",
                                        "OMPI_MCA_pmix",
                                        "OMPI_APP_CTX_NUM_PROCS",
                                        "OMPI_FIRST_RANKS",
                                        "OMPI_NUM_APP_CTX",
                                        "OMPI_UNIVERSE_SIZE",
                                        "OMPI_FILE_LOCATION",
                                        "PMIX_*",
                                        "PMI_*",
                                        "MV2_COMM_WORLD_*",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "PALS_RANKID",
                                        "PALS_LOCAL_RANKID",
                                        "JSM_NAMESPACE_*",
                                        "FLUX_TASK_*",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_GTIDS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_TASKS_PER_NODE"};
  return names;
}

// What a user sets to tune PMIx, though its other names are all a launcher's.
constexpr std::string_view kTuning = "PMIX_MCA_";

bool IsOneOf(const Names& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [name](std::string_view pattern) {
    if (!pattern.ends_with('*')) {
      return name == pattern;
    }
    pattern.remove_suffix(1);
    return name.starts_with(pattern);
  });
}

}  // namespace

bool NeedsWorkerPorts(const Frameworks& frameworks) {
  return std::any_of(Table().begin(), Table().end(), [&frameworks](const Framework& framework) {
    return framework.needs_worker_ports && frameworks.*framework.chosen;
  });
}

absl::Status CheckFrameworks(const Frameworks& frameworks, const RoundInfo& round) {
  const bool no_list = frameworks.tensorflow && round.worker_addresses == nullptr;
  const bool no_port = NeedsWorkerPorts(frameworks) && round.first_worker_port == 0;
  if (no_port) {
    return absl::FailedPreconditionError(
        "the coordinator told no worker's port, which --env=tensorflow and --env=jax need: it is "
        "of an older ddlaunch; start it again with this version");
  }
  if (no_list) {
    return absl::FailedPreconditionError(
        absl::StrCat("--env=tensorflow: the addresses of ", round.world_size,
                     " workers are longer than one environment variable, TF_CONFIG, can be (",
                     limits::kMaxWorkerAddressesBytes >> 10U,
                     " KiB); start fewer workers, or pass the "
                     "cluster to TensorFlow in another way"));
  }
  return absl::OkStatus();
}

Variables FrameworkVariables(const std::vector<std::string>& parent, const LaunchConfig& config,
                             const RoundInfo& round, std::int32_t local_rank) {
  const Place place{parent, config, round, local_rank};
  Variables out;
  for (const Framework& framework : Table()) {
    if (!(config.frameworks.*framework.chosen)) {
      continue;
    }
    for (auto& variable : framework.variables(place)) {
      const bool known = std::any_of(out.begin(), out.end(), [&variable](const auto& other) {
        return other.first == variable.first;
      });
      if (!known) {
        out.push_back(std::move(variable));
      }
    }
  }
  return out;
}

bool Misleads(const Frameworks& frameworks, const RoundInfo& round, std::string_view name) {
  bool any_chosen = round.world_size > 1;
  for (const Framework& framework : Table()) {
    const bool chosen = frameworks.*framework.chosen;
    any_chosen = any_chosen || (chosen && framework.chosen != &Frameworks::torch);
    if ((chosen && IsOneOf(framework.dropped_if_chosen, name)) ||
        ((chosen || round.world_size > 1) && IsOneOf(framework.dropped_in_a_world, name))) {
      return true;
    }
  }
  return any_chosen && IsOneOf(OtherLaunchers(), name) && !name.starts_with(kTuning);
}

std::vector<std::string> KeptFromWorkers(const std::vector<std::string>& parent,
                                         const Frameworks& frameworks, const RoundInfo& round) {
  std::vector<std::string> names;
  for (const std::string& entry : parent) {
    std::string name = entry.substr(0, entry.find('='));
    if (Misleads(frameworks, round, name)) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

std::string OverruledByPlan(const std::vector<std::string>& parent, const LaunchConfig& config,
                            const RoundInfo& round) {
  const auto users = Find(parent, kAccumulation);
  if (!config.frameworks.torch || !round.plan.has_value() || !round.plan->even() ||
      !users.has_value() || *users == std::to_string(round.plan->grad_accum_steps)) {
    return "";
  }
  return absl::StrCat(kAccumulation, "=", *users,
                      " in the environment is not what the plan says; the workers get ",
                      round.plan->grad_accum_steps);
}

}  // namespace ddl
