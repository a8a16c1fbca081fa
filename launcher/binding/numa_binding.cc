// First each worker's NUMA nodes, then the part of them that the kind gives it.
#include "launcher/binding/numa_binding.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/base/check.h"
#include "agent/base/status_macros.h"

namespace ddl {
namespace {

using NodeSet = std::set<std::int32_t>;

// A worker, or a GPU that no worker uses: it keeps its part of the node.
struct Slot {
  NodeSet nodes;
  std::size_t index = 0;  // among those with the same nodes
  std::size_t peers = 1;  // how many these are
};

NodeSet NodesOf(const Topology& topology) {
  NodeSet nodes;
  for (const CpuPlace& place : topology.cpus) {
    nodes.insert(place.node);
  }
  return nodes;
}

std::vector<Slot> SlotsByGpu(std::size_t nproc, const std::vector<std::int32_t>& gpu_nodes) {
  std::vector<Slot> slots(std::max(nproc, gpu_nodes.size()));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i].nodes = {gpu_nodes[i % gpu_nodes.size()]};
  }
  return slots;
}

std::vector<Slot> SlotsByShare(std::size_t nproc, const NodeSet& all) {
  const std::vector<std::int32_t> nodes(all.begin(), all.end());
  std::vector<Slot> slots(nproc);
  for (std::size_t i = 0; i < nproc; ++i) {
    const std::size_t first = i * nodes.size() / nproc;
    const std::size_t next = std::max((i + 1) * nodes.size() / nproc, first + 1);
    for (std::size_t node = first; node < next; ++node) {
      slots[i].nodes.insert(nodes[node]);
    }
  }
  return slots;
}

void CountPeers(std::vector<Slot>& slots) {
  std::map<NodeSet, std::size_t> counts;
  for (Slot& slot : slots) {
    slot.index = counts[slot.nodes]++;
  }
  for (Slot& slot : slots) {
    slot.peers = counts[slot.nodes];
  }
}

template <typename Wanted>
CpuList Select(const Topology& topology, const Wanted& wanted) {
  CpuList cpus;
  for (const CpuPlace& place : topology.cpus) {
    if (wanted(place)) {
      cpus.push_back(place.cpu);
    }
  }
  return cpus;
}

CpuList OfNodes(const Topology& topology, const NodeSet& nodes) {
  return Select(topology, [&](const CpuPlace& place) { return nodes.contains(place.node); });
}

CpuList OfSockets(const Topology& topology, const NodeSet& nodes) {
  std::set<std::int32_t> packages;
  for (const CpuPlace& place : topology.cpus) {
    if (nodes.contains(place.node)) {
      packages.insert(place.package);
    }
  }
  return Select(topology, [&](const CpuPlace& place) { return packages.contains(place.package); });
}

// The CPUs of these nodes, by the core or cache that `key` says.
std::map<std::int32_t, CpuList> Grouped(const Topology& topology, const NodeSet& nodes,
                                        std::int32_t CpuPlace::*key) {
  std::map<std::int32_t, CpuList> groups;
  for (const CpuPlace& place : topology.cpus) {
    if (nodes.contains(place.node)) {
      groups[place.*key].push_back(place.cpu);
    }
  }
  return groups;
}

// The first slots get the cores that do not divide.
absl::StatusOr<CpuList> OwnCores(const Topology& topology, const Slot& slot) {
  const auto cores = Grouped(topology, slot.nodes, &CpuPlace::core);
  const std::size_t each = cores.size() / slot.peers;
  const std::size_t extra = cores.size() % slot.peers;
  if (each == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NUMA node ", absl::StrJoin(slot.nodes, "+"), " has ", cores.size(),
        cores.size() == 1 ? " core" : " cores", " that this process may use, for ", slot.peers,
        " workers or GPUs; an own one for each needs fewer of them, or --numa-binding=node"));
  }
  const std::size_t first = slot.index * each + std::min(slot.index, extra);
  const std::size_t count = each + (slot.index < extra ? 1 : 0);
  CpuList cpus;
  auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(first));
  for (std::size_t i = 0; i < count; ++i, ++core) {
    cpus.insert(cpus.end(), core->second.begin(), core->second.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

// Those with more usable CPUs first.
CpuList OneComplex(const Topology& topology, const Slot& slot) {
  const auto groups = Grouped(topology, slot.nodes, &CpuPlace::cache);
  std::vector<CpuList> complexes;
  complexes.reserve(groups.size());
  for (const auto& [cache, cpus] : groups) {
    complexes.push_back(cpus);
  }
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const CpuList& a, const CpuList& b) { return a.size() > b.size(); });
  return complexes[slot.index % complexes.size()];
}

absl::StatusOr<CpuList> CpusOf(NumaBinding kind, const Topology& topology, const Slot& slot) {
  switch (kind) {
    case NumaBinding::kSocket:
      return OfSockets(topology, slot.nodes);
    case NumaBinding::kExclusive:
      return OwnCores(topology, slot);
    case NumaBinding::kCoreComplex:
      return OneComplex(topology, slot);
    case NumaBinding::kNode:
    case NumaBinding::kNone:
      break;
  }
  return OfNodes(topology, slot.nodes);
}

CpuList All(const Topology& topology) {
  return Select(topology, [](const CpuPlace& /*unused*/) { return true; });
}

}  // namespace

absl::StatusOr<std::vector<CpuList>> BindWorkers(NumaBinding kind, const Topology& topology,
                                                 std::int32_t nproc,
                                                 const std::vector<std::int32_t>& gpu_nodes) {
  DDL_CHECK(kind != NumaBinding::kNone && nproc > 0);
  const NodeSet nodes = NodesOf(topology);
  if (nodes.empty()) {
    return absl::FailedPreconditionError("no CPU of this machine is known to be usable");
  }
  const auto count = static_cast<std::size_t>(nproc);
  std::vector<Slot> slots =
      gpu_nodes.empty() ? SlotsByShare(count, nodes) : SlotsByGpu(count, gpu_nodes);
  CountPeers(slots);
  std::vector<CpuList> workers;
  workers.reserve(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const Slot& slot = slots[rank];
    if (!nodes.contains(*slot.nodes.begin())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "local rank ", rank, ": its GPU (", rank % gpu_nodes.size(), ") is at NUMA node ",
          *slot.nodes.begin(), ", of which this process may use no CPU; it may use CPU ",
          ToText(All(topology))));
    }
    DDL_ASSIGN_OR_RETURN(CpuList cpus, CpusOf(kind, topology, slot));
    workers.push_back(std::move(cpus));
  }
  return workers;
}

std::vector<std::int32_t> FairThreads(const std::vector<CpuList>& workers) {
  std::map<std::int32_t, std::int32_t> sharers;
  for (const CpuList& cpus : workers) {
    for (const std::int32_t cpu : cpus) {
      ++sharers[cpu];
    }
  }
  constexpr double kRounding = 1e-6;
  std::vector<std::int32_t> threads;
  threads.reserve(workers.size());
  for (const CpuList& cpus : workers) {
    double share = kRounding;
    for (const std::int32_t cpu : cpus) {
      share += 1.0 / sharers.at(cpu);
    }
    threads.push_back(std::max(1, static_cast<std::int32_t>(share)));
  }
  return threads;
}

}  // namespace ddl
