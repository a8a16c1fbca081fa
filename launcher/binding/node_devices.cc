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

bool HasFile(const std::filesystem::path& directory, std::string_view prefix) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().native().starts_with(prefix)) {
      return true;
    }
  }
  return false;
}

}  // namespace

NodeDevices LookAtDevices(std::int32_t num_gpus, const std::string& device_dir) {
  NodeDevices devices;
  devices.num_gpus = num_gpus;
  // Also what draws only (dri/card0 is any screen, renderD128 a GPU), and a device
  // that was handed through to this machine (TPU).
  devices.no_accelerator =
      num_gpus == 0 && !HasFile(device_dir + "/dri", "renderD") &&
      std::none_of(kAccelerators.begin(), kAccelerators.end(),
                   [&](std::string_view prefix) { return HasFile(device_dir, prefix); });
  return devices;
}

}  // namespace ddl
