// From hwloc's tree to one row a CPU.
#include "launcher/binding/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace ddl {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyPtr = std::unique_ptr<hwloc_topology, Destroy>;

std::int32_t LowestCpu(hwloc_const_bitmap_t cpus) {
  return hwloc_bitmap_first(cpus);
}

// hwloc's own attach memory to the nearest object, so a thread may see several
// NUMA nodes: its own and one of high-bandwidth memory without CPUs, which the
// kernel numbers later.
CpuPlace PlaceOf(hwloc_obj_t thread) {
  CpuPlace place;
  place.cpu = static_cast<std::int32_t>(thread->os_index);
  place.core = place.cpu;
  place.node = std::max(0, hwloc_bitmap_first(thread->nodeset));
  bool has_cache = false;
  bool has_package = false;
  for (hwloc_obj_t above = thread->parent; above != nullptr; above = above->parent) {
    const std::int32_t lowest = LowestCpu(above->cpuset);
    if (above->type == HWLOC_OBJ_CORE) {
      place.core = lowest;
    } else if (above->type == HWLOC_OBJ_PACKAGE) {
      place.package = lowest;
      has_package = true;
    } else if (hwloc_obj_type_is_dcache(above->type) != 0) {
      place.cache = lowest;  // the outermost wins
      has_cache = true;
    } else if (above->parent == nullptr && !has_package) {
      place.package = lowest;
    }
  }
  if (!has_cache) {
    place.cache = place.package;  // no cache is told of (some virtual machines)
  }
  return place;
}

}  // namespace

absl::StatusOr<Topology> LoadTopology(const std::string& synthetic) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) {
    return absl::UnavailableError("hwloc cannot start");
  }
  const TopologyPtr loaded(made);
  // Objects are whole also where a part of them is not ours.
  hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(made, synthetic.c_str()) != 0) {
    return absl::InvalidArgumentError("hwloc does not understand the topology \"" + synthetic +
                                      "\"");
  }
  if (hwloc_topology_load(made) != 0) {
    return absl::UnavailableError("hwloc cannot read this machine's topology");
  }
  Topology topology;
  const int depth = hwloc_get_type_depth(made, HWLOC_OBJ_PU);
  const unsigned count = hwloc_get_nbobjs_by_depth(made, depth);
  for (unsigned i = 0; i < count; ++i) {
    topology.cpus.push_back(PlaceOf(hwloc_get_obj_by_depth(made, depth, i)));
  }
  std::sort(topology.cpus.begin(), topology.cpus.end(),
            [](const CpuPlace& a, const CpuPlace& b) { return a.cpu < b.cpu; });
  return topology;
}

Topology Restrict(const Topology& topology, const CpuList& allowed) {
  Topology restricted;
  std::copy_if(topology.cpus.begin(), topology.cpus.end(), std::back_inserter(restricted.cpus),
               [&allowed](const CpuPlace& place) {
                 return std::binary_search(allowed.begin(), allowed.end(), place.cpu);
               });
  return restricted;
}

}  // namespace ddl
