// NVML, else /proc: see memory_meter.h.
#include "launcher/tune/memory_meter.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <utility>

#include "agent/base/file_io.h"
#include "launcher/failures/memory_facts.h"
#include "launcher/process/process_tree.h"

namespace ddl::tune {
namespace {

struct Device {
  std::string uuid;   // empty: there is none that NVML knows
  std::string model;  // empty: not known
};

// The one that CUDA shows a worker first.
Device FirstDevice(const GpuView& view) {
  if (view.visible.count() == 0) {
    return {};
  }
  const VisibleDevice& first = view.visible.devices.front();
  const Gpu gpu =
      first.gpu.has_value() && *first.gpu < view.gpus.size() ? view.gpus[*first.gpu] : Gpu{};
  return {first.entry.starts_with("MIG-") ? first.entry : gpu.uuid, gpu.name};
}

std::int64_t HostBytes() {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const std::int64_t host = std::max<std::int64_t>(pages, 0) * ::sysconf(_SC_PAGESIZE);
  const std::optional<std::int64_t> group = ReadMemoryFacts().group_limit_bytes;
  return group.has_value() && *group > 0 ? std::min(host, *group) : host;
}

// The second number of /proc/<pid>/statm, in pages.
std::int64_t ResidentBytes(pid_t pid) {
  constexpr std::size_t kMaxBytes = 256;
  const auto text = ReadFileUpTo("/proc/" + std::to_string(pid) + "/statm", kMaxBytes);
  long long pages = 0;
  const bool read = text.has_value() && std::sscanf(text->c_str(), "%*d %lld", &pages) == 1;
  return read ? pages * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

MemoryMeter::MemoryMeter(const EnvironmentMap& environment, const DeviceSources& sources)
    : whose_("this host") {
  const GpuView view = LookAtGpus(environment, sources);
  if (const Device device = FirstDevice(view); !device.uuid.empty()) {
    auto reader = OpenGpuMemory(sources.nvml_library, device.uuid);
    if (reader.ok()) {
      if (const auto memory = (*reader)->Read(); memory.ok()) {
        gpu_ = *std::move(reader);
        total_bytes_ = memory->total_bytes;
        whose_ = device.model.empty() ? "GPU " + device.uuid
                                      : "GPU " + device.model + " (" + device.uuid + ")";
      }
    }
  }
  if (gpu_ == nullptr) {
    total_bytes_ = HostBytes();
  }
}

std::int64_t MemoryMeter::UsedBytes(pid_t root) const {
  if (gpu_ != nullptr) {
    const auto memory = gpu_->Read();
    return memory.ok() ? memory->used_bytes : 0;
  }
  std::int64_t bytes = 0;
  for (const pid_t pid : Descendants(root)) {
    bytes += ResidentBytes(pid);
  }
  return bytes;
}

}  // namespace ddl::tune
