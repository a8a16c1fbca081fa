// The environment of a worker, as torchrun gives it, plus DDL_* and what other
// frameworks' programs look for (framework_env.h). Pure.
#ifndef DDLAUNCH_LAUNCHER_WORKER_WORKER_ENV_H_
#define DDLAUNCH_LAUNCHER_WORKER_WORKER_ENV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/launch_config.h"
#include "launcher/round_info.h"

namespace ddl {

// The parent's environment ("NAME=value" each) without the names set here, then
// these in a fixed order. What the parent has of them is stale (ddlaunch may
// itself run inside a worker of something) and never leaks through, but for
// OMP_NUM_THREADS and TORCH_NCCL_ASYNC_ERROR_HANDLING, which a user sets to tune
// the workers, and CUDA_VISIBLE_DEVICES, unless each gets a GPU of its own. Nor
// does what another launcher told ddlaunch of itself. `usable_cpus` are this
// process's own (its affinity).
std::vector<std::string> WorkerEnvironment(const std::vector<std::string>& parent,
                                           const LaunchConfig& config, const RoundInfo& round,
                                           std::int32_t local_rank, const std::string& error_file,
                                           std::int32_t usable_cpus);

// Where that worker runs; wherever it likes unless launcher/binding has said.
const WorkerPlace& PlaceOf(const LaunchConfig& config, std::int32_t local_rank);

// This process's environment.
std::vector<std::string> OwnEnvironment();

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_WORKER_ENV_H_
