// What each framework's programs look for in a worker's environment: one table,
// a function for each framework. Pure.
//
// RANK, WORLD_SIZE, MASTER_ADDR and the rest of torchrun's variables are always
// there (worker_env.h). On top of them, by --env:
//
// torch (the default)
//   ACCELERATE_GRADIENT_ACCUMULATION_STEPS  the plan's, where there is a plan
//       with even shares; Accelerate reads it in Accelerator()
//       (accelerate/accelerator.py).
//   ACCELERATE_USE_CPU=true  where this node has no accelerator of any kind and
//       the user said nothing: without it, and without a GPU, Accelerate takes
//       each worker for a job of its own (accelerate/state.py, _prepare_backend).
// tensorflow
//   TF_CONFIG  the cluster's workers by rank, and which of them this is
//       (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py).
// jax
//   JAX_COORDINATOR_ADDRESS  where rank 0's process is to listen: its own worker
//       port, as MASTER_PORT may be taken by PyTorch's store.
//   JAX_NUM_PROCESSES, JAX_PROCESS_ID  a convention of programs, not read by JAX.
//   JAX_LOCAL_DEVICE_IDS  one GPU for each worker; all for one that is alone on
//       its node.
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and OMPI_MCA_orte_hnp_uri  how
//       jax.distributed.initialize() with no arguments learns its place: it knows
//       Open MPI's, Slurm's, Kubernetes' and Cloud TPU's environment only
//       (jax/_src/clusters). The last only has to be there; Open MPI's MPI_Init in
//       such a worker is what it is without a launcher, a world of one.
// mpi
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _NODE_RANK (Open MPI's;
//       the last is the rank on the node) and HOROVOD_RANK, _SIZE, _LOCAL_RANK,
//       _LOCAL_SIZE: for programs that read their rank there. They make no MPI
//       job: an MPI_Init finds a world of one, as with torchrun. PMI_* and PMIX_*
//       are not set: they say that a process manager is there to be called.
//
// What the parent has of these and of other launchers (ddlaunch itself may be a
// task of srun or mpirun) numbers ddlaunch, not its workers. It is passed on only
// to a worker that is alone in its job, for which ddlaunch is a mere wrapper.
// SLURM_JOB_ID and what else describes the allocation always is; so is how many
// tasks it has (SLURM_NTASKS, SLURM_TASKS_PER_NODE and their like, which sbatch
// sets too, and which srun in a worker reads), but with jax and mpi: programs of
// their kind take it for the size of the world.
#ifndef DDLAUNCH_LAUNCHER_WORKER_FRAMEWORK_ENV_H_
#define DDLAUNCH_LAUNCHER_WORKER_FRAMEWORK_ENV_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "launcher/launch_config.h"
#include "launcher/round_info.h"

namespace ddl {

using Variables = std::vector<std::pair<std::string, std::string>>;

// A program of these frameworks has to know where others of its kind listen, so
// each worker gets a port of its own.
[[nodiscard]] bool NeedsWorkerPorts(const Frameworks& frameworks);

// Whether the round has what the frameworks need. FAILED_PRECONDITION: not, in a
// sentence for the user.
[[nodiscard]] absl::Status CheckFrameworks(const Frameworks& frameworks, const RoundInfo& round);

// What the worker gets on top of torchrun's variables. A name comes once.
// REQUIRES: CheckFrameworks found nothing.
[[nodiscard]] Variables FrameworkVariables(const std::vector<std::string>& parent,
                                           const LaunchConfig& config, const RoundInfo& round,
                                           std::int32_t local_rank);

// The parent's value of this name would tell a worker of this round somebody
// else's rank, world or peers.
[[nodiscard]] bool Misleads(const Frameworks& frameworks, const RoundInfo& round,
                            std::string_view name);

// The names of the parent's that Misleads keeps from the workers.
[[nodiscard]] std::vector<std::string> KeptFromWorkers(const std::vector<std::string>& parent,
                                                       const Frameworks& frameworks,
                                                       const RoundInfo& round);

// A value of the user's that the plan overrules, in a sentence; empty: none.
[[nodiscard]] std::string OverruledByPlan(const std::vector<std::string>& parent,
                                          const LaunchConfig& config, const RoundInfo& round);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_FRAMEWORK_ENV_H_
