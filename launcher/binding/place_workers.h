// Finds out where each worker of this node runs: on which CPUs (--numa-binding)
// and with which GPU (--virtual-local-rank). Before anything is started.
#ifndef DDLAUNCH_LAUNCHER_BINDING_PLACE_WORKERS_H_
#define DDLAUNCH_LAUNCHER_BINDING_PLACE_WORKERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/binding/cpu_list.h"
#include "launcher/binding/devices.h"
#include "launcher/binding/topology.h"
#include "launcher/binding/worker_place.h"

namespace ddl {

struct PlaceRequest {
  std::int32_t nproc = 1;
  NumaBinding numa_binding = NumaBinding::kNone;
  bool virtual_local_rank = false;
};

struct Placement {
  std::vector<WorkerPlace> workers;  // by local rank; empty: nothing was asked for
  std::vector<std::string> notes;    // what was chosen
  std::vector<std::string> warnings;
};

// Loads NVML and reads the machine's topology only if they are asked for.
// Errors: INVALID_ARGUMENT, fewer visible GPUs than workers that get one each;
// FAILED_PRECONDITION, as BindWorkers; UNAVAILABLE, the topology cannot be
// read. The last two are about --numa-binding, which the text does not name.
absl::StatusOr<Placement> PlaceWorkers(const PlaceRequest& request,
                                       const EnvironmentMap& environment,
                                       const DeviceSources& sources);

// ---- its parts, pure but for the kernel's word on a GPU's NUMA node -------------

// Each worker's CUDA_VISIBLE_DEVICES (and HIP_VISIBLE_DEVICES, where that is set)
// into workers[i].devices. As torchrun: the i-th entry of the parent's list, or i
// where there is none; without any GPU nobody is refused.
absl::Status ShowEachItsGpu(const EnvironmentMap& environment, const GpuView& view,
                            Placement& placement);

// The CPUs and threads of each worker. `topology` has only usable CPUs.
absl::Status BindEachToCpus(const PlaceRequest& request, const EnvironmentMap& environment,
                            const GpuView& view, const DeviceSources& sources,
                            const Topology& topology, Placement& placement);

// Nothing, or a line about workers that have to share a GPU, which NCCL refuses;
// only where there are GPUs, but too few. A program that uses none runs well.
std::string SharingWarning(std::int32_t nproc, std::int32_t gpus);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_PLACE_WORKERS_H_
