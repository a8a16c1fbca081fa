// Which CPUs each worker of a node is bound to. Pure.
//
// The kinds and their meaning are torchrun's (torch/numa/binding.py); a worker's
// GPU is the visible one whose index is its local rank. Where a node has no GPU
// (torchrun refuses that), the NUMA nodes are dealt out instead: worker r of P
// gets node floor(r x N / P) of N, or, where there are more nodes than workers,
// the nodes from there to the next worker's.
#ifndef DDLAUNCH_LAUNCHER_BINDING_NUMA_BINDING_H_
#define DDLAUNCH_LAUNCHER_BINDING_NUMA_BINDING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/binding/cpu_list.h"
#include "launcher/binding/topology.h"
#include "launcher/binding/worker_place.h"

namespace ddl {

// The CPUs of each local rank, none of them empty. `topology` holds only what
// this process may use. `gpu_nodes` is the NUMA node of each visible GPU, in
// their order; empty: no GPUs. More workers than GPUs share them in turn (local
// rank modulo their number), and the node's cores with them.
// Errors: FAILED_PRECONDITION, no CPU of a worker's node may be used, or it has
// fewer cores than kExclusive needs; the text names the local ranks.
// REQUIRES: kind is not kNone, nproc > 0.
absl::StatusOr<std::vector<CpuList>> BindWorkers(NumaBinding kind, const Topology& topology,
                                                 std::int32_t nproc,
                                                 const std::vector<std::int32_t>& gpu_nodes);

// How many threads each worker can run so that there are no more threads than
// CPUs: a CPU is split among the workers that are bound to it. At least 1 each.
std::vector<std::int32_t> FairThreads(const std::vector<CpuList>& workers);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_NUMA_BINDING_H_
