// Device files: see node_devices.h.
#include "launcher/binding/node_devices.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace ddl {
namespace {

// How the names begin that drivers give to what computes: AMD, Intel Gaudi and
// Google TPU (accel), WSL (dxg), Jetson (nvhost, nvgpu), Huawei Ascend (davinci),
// AWS, Cambricon, Moore Threads, Tecorigin, Google Edge TPU (apex).
constexpr std::array<std::string_view, 12> kAccelerators = {
    "kfd",     "accel",  "habanalabs", "dxg",   "nvhost",   "nvgpu",
    "davinci", "neuron", "cambricon",  "mtgpu", "tcaicard", "apex"};

bool IsAccelerator(std::string_view name) {
  return std::any_of(kAccelerators.begin(), kAccelerators.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// A GPU of any maker; dri/card0 is any screen.
bool IsRenderer(std::string_view name) {
  return name.starts_with("renderD");
}

bool HasFile(const std::filesystem::path& directory, bool (*is_wanted)(std::string_view name)) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (is_wanted(it->path().filename().native())) {
      return true;
    }
  }
  return false;
}

}  // namespace

NodeDevices LookAtDevices(const std::vector<std::string>& environment,
                          const DeviceSources& sources) {
  EnvironmentMap variables;
  const std::string prefix = std::string(kVisibleDevices) + "=";
  for (const std::string& entry : environment) {
    if (entry.starts_with(prefix)) {
      variables[kVisibleDevices] = entry.substr(prefix.size());
    }
  }
  NodeDevices devices;
  devices.num_gpus = GuessGpuCount(variables, sources);
  // Also a device that was handed through to this machine (TPU).
  devices.no_accelerator = devices.num_gpus == 0 &&
                           !HasFile(sources.device_dir + "/dri", IsRenderer) &&
                           !HasFile(sources.device_dir, IsAccelerator);
  return devices;
}

}  // namespace ddl
