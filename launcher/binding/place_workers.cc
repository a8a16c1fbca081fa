// GPUs first: where they are decides on the CPUs.
#include "launcher/binding/place_workers.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/binding/numa_binding.h"

namespace ddl {
namespace {

std::string Devices(std::size_t count) {
  return absl::StrCat(count, count == 1 ? " GPU" : " GPUs");
}

std::string Ranks(std::size_t first, std::size_t end) {
  return first + 1 == end ? absl::StrCat("local rank ", first)
                          : absl::StrCat("local ranks ", first, " to ", end - 1);
}

absl::Status TooFew(std::size_t gpus, std::size_t nproc, const std::string& explanation) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--virtual-local-rank gives each worker a GPU of its own, but ", nproc, " workers see ",
      Devices(gpus), " (", explanation, "): none is left for ", Ranks(gpus, nproc)));
}

// The list that a worker's entry is taken from, and the names under which it gets it.
struct Source {
  VisibleDevices visible;
  std::vector<std::string> names;
  std::string explanation;
};

// HIP_VISIBLE_DEVICES comes before CUDA_VISIBLE_DEVICES on AMD's machines, of
// whose GPUs NVML knows nothing.
Source SourceOf(const EnvironmentMap& environment, const GpuView& view) {
  const auto hip = environment.find(kHipVisibleDevices);
  if (hip == environment.end() || hip->second.empty()) {
    return {view.visible, {kVisibleDevices}, view.explanation};
  }
  return {ReadVisibleDevices(hip->second, nullptr),
          {kVisibleDevices, kHipVisibleDevices},
          absl::StrCat(kHipVisibleDevices, "=", hip->second)};
}

void WarnOfSharing(const VisibleDevices& visible, Placement& placement) {
  if (visible.twice.empty()) {
    return;
  }
  std::map<std::string, std::size_t> first;
  for (std::size_t rank = 0; rank < placement.workers.size(); ++rank) {
    const VisibleDevice& device = visible.devices[rank];
    const std::string key = device.gpu ? absl::StrCat(*device.gpu) : device.entry;
    const auto [it, is_new] = first.emplace(key, rank);
    if (!is_new) {
      placement.warnings.push_back(absl::StrCat("local ranks ", it->second, " and ", rank,
                                                " get the same GPU (", device.entry,
                                                "), which NCCL refuses"));
      return;
    }
  }
}

// Under CUDA's own order (the fastest first) an index is not NVML's.
bool OrderMayDiffer(const EnvironmentMap& environment, const GpuView& view) {
  const auto order = environment.find("CUDA_DEVICE_ORDER");
  if (order != environment.end() && order->second == "PCI_BUS_ID") {
    return false;
  }
  std::set<std::string> models;
  for (const Gpu& gpu : view.gpus) {
    models.insert(gpu.name);
  }
  return models.size() > 1 && std::any_of(view.visible.devices.begin(), view.visible.devices.end(),
                                          [](const VisibleDevice& device) {
                                            return device.entry.find('-') == std::string::npos;
                                          });
}

// Empty: no GPU, or it is not known of each where it is.
std::vector<std::int32_t> NodesOfGpus(const std::vector<VisibleDevice>& devices,
                                      const GpuView& view, const DeviceSources& sources,
                                      const Topology& topology, Placement& placement) {
  std::set<std::int32_t> known;
  for (const CpuPlace& place : topology.cpus) {
    known.insert(place.node);
  }
  std::vector<std::int32_t> nodes;
  for (const VisibleDevice& device : devices) {
    std::int32_t node = device.gpu ? NumaNodeOf(view.gpus.at(*device.gpu), sources) : -1;
    if (node < 0 && known.size() == 1) {
      node = *known.begin();  // where else
    }
    if (node < 0) {
      placement.warnings.push_back(absl::StrCat(
          "it is not known at which NUMA node GPU ", device.entry,
          " is; workers are bound to their share of the NUMA nodes as if there were no GPU"));
      return {};
    }
    nodes.push_back(node);
  }
  return nodes;
}

std::string BindingNote(const std::vector<CpuList>& cpus) {
  constexpr std::size_t kMostNamed = 8;
  std::string note = "workers are bound to CPUs: ";
  for (std::size_t rank = 0; rank < std::min(cpus.size(), kMostNamed); ++rank) {
    absl::StrAppend(&note, rank == 0 ? "" : "; ", "local rank ", rank, " to ", ToText(cpus[rank]));
  }
  if (cpus.size() > kMostNamed) {
    absl::StrAppend(&note, "; and so on");
  }
  return note;
}

}  // namespace

absl::Status ShowEachItsGpu(const EnvironmentMap& environment, const GpuView& view,
                            Placement& placement) {
  const Source source = SourceOf(environment, view);
  const std::size_t nproc = placement.workers.size();
  const std::size_t gpus = source.visible.devices.size();
  if (gpus > 0 && nproc > gpus) {
    return TooFew(gpus, nproc, source.explanation);
  }
  const bool has_list = environment.contains(kVisibleDevices) || source.names.size() > 1;
  for (std::size_t rank = 0; rank < nproc; ++rank) {
    std::string entry;
    if (gpus > 0) {
      entry = source.visible.devices[rank].entry;
    } else if (!has_list) {
      entry = std::to_string(rank);
    }
    for (const std::string& name : source.names) {
      placement.workers[rank].devices.push_back(absl::StrCat(name, "=", entry));
    }
  }
  if (gpus > 0) {
    WarnOfSharing(source.visible, placement);
  }
  return absl::OkStatus();
}

absl::Status BindEachToCpus(const PlaceRequest& request, const EnvironmentMap& environment,
                            const GpuView& view, const DeviceSources& sources,
                            const Topology& topology, Placement& placement) {
  // A list that names a GPU twice shows none, but to workers that get an entry each.
  const bool sees_gpus = view.visible.count() > 0 || request.virtual_local_rank;
  const std::vector<std::int32_t> gpu_nodes =
      sees_gpus ? NodesOfGpus(view.visible.devices, view, sources, topology, placement)
                : std::vector<std::int32_t>();
  DDL_ASSIGN_OR_RETURN(const std::vector<CpuList> cpus,
                       BindWorkers(request.numa_binding, topology, request.nproc, gpu_nodes));
  if (!gpu_nodes.empty() && OrderMayDiffer(environment, view)) {
    placement.warnings.emplace_back(
        "this node's GPUs are of several models, so CUDA may number them in another order than "
        "they were bound in; set CUDA_DEVICE_ORDER=PCI_BUS_ID");
  }
  const std::vector<std::int32_t> threads = FairThreads(cpus);
  for (std::size_t rank = 0; rank < cpus.size(); ++rank) {
    placement.workers[rank].cpus = cpus[rank];
    placement.workers[rank].threads = threads[rank];
  }
  placement.notes.push_back(BindingNote(cpus));
  return absl::OkStatus();
}

std::string SharingWarning(std::int32_t nproc, std::int32_t gpus) {
  if (gpus <= 0 || nproc <= gpus) {
    return "";
  }
  return absl::StrCat(nproc, " workers see ", Devices(static_cast<std::size_t>(gpus)),
                      ": with one GPU for each, local ranks 0 and ", gpus,
                      " would share one, which NCCL refuses; --nproc-per-node=gpu starts as many "
                      "as there are");
}

absl::StatusOr<Placement> PlaceWorkers(const PlaceRequest& request,
                                       const EnvironmentMap& environment,
                                       const DeviceSources& sources) {
  Placement placement;
  const bool binds = request.numa_binding != NumaBinding::kNone;
  if (!binds && !request.virtual_local_rank) {
    return placement;
  }
  placement.workers.resize(static_cast<std::size_t>(request.nproc));
  const GpuView view = LookAtGpus(environment, sources);
  if (request.virtual_local_rank) {
    DDL_RETURN_IF_ERROR(ShowEachItsGpu(environment, view, placement));
  }
  if (binds) {
    DDL_ASSIGN_OR_RETURN(const Topology machine, LoadTopology());
    DDL_RETURN_IF_ERROR(BindEachToCpus(request, environment, view, sources,
                                       Restrict(machine, AllowedCpus()), placement));
  }
  return placement;
}

}  // namespace ddl
