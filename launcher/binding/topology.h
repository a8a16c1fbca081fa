// Where each CPU of a machine sits: a plain value that the binding rules read.
#ifndef DDLAUNCH_LAUNCHER_BINDING_TOPOLOGY_H_
#define DDLAUNCH_LAUNCHER_BINDING_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/binding/cpu_list.h"

namespace ddl {

// One hardware thread (a CPU in the kernel's words). Cores, caches and packages
// are named by the lowest CPU in them, NUMA nodes by the kernel's number.
struct CpuPlace {
  std::int32_t cpu = 0;
  std::int32_t core = 0;
  std::int32_t cache = 0;  // the largest data cache above it (L3): a core complex
  std::int32_t node = 0;
  std::int32_t package = 0;  // socket
};

struct Topology {
  std::vector<CpuPlace> cpus;  // in the order of `cpu`
};

// This machine's, by hwloc, whether this process may use a CPU or not; or, for
// tests, of a description in hwloc's words: "pack:2 numa:2 l3:2 core:4 pu:2".
// (hwloc also reads HWLOC_SYNTHETIC and HWLOC_XMLFILE.) Takes milliseconds.
// Not thread safe. Errors: INVALID_ARGUMENT, the description; UNAVAILABLE, hwloc
// cannot read the machine.
absl::StatusOr<Topology> LoadTopology(const std::string& synthetic = "");

// Only these CPUs.
Topology Restrict(const Topology& topology, const CpuList& allowed);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_TOPOLOGY_H_
