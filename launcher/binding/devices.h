// Which GPUs this node has for workers. Read-only.
#ifndef DDLAUNCH_LAUNCHER_BINDING_DEVICES_H_
#define DDLAUNCH_LAUNCHER_BINDING_DEVICES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/binding/nvml.h"
#include "launcher/binding/visible_devices.h"

namespace ddl {

inline constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";
inline constexpr char kHipVisibleDevices[] = "HIP_VISIBLE_DEVICES";

using EnvironmentMap = std::map<std::string, std::string>;

// Where the machine is looked at; a test gives its own.
struct DeviceSources {
  std::string nvml_library = "libnvidia-ml.so.1";  // for dlopen(3)
  std::string device_dir = "/dev";                 // nvidia0, nvidia1, ...
  std::string pci_dir = "/sys/bus/pci/devices";    // of the kernel
};

struct GpuView {
  // What workers see, by the environment.
  VisibleDevices visible;
  // All of the machine's, as NVML numbers them; empty without NVML.
  std::vector<Gpu> gpus;
  // A clause about what there is, for messages: "CUDA_VISIBLE_DEVICES is empty".
  std::string explanation;
};

// Loads NVML (see nvml.h). Without it, CUDA_VISIBLE_DEVICES is taken at its word,
// and where that is not set the device files count.
GpuView LookAtGpus(const EnvironmentMap& environment, const DeviceSources& sources);

// The same count from the environment and the device files alone: costs nothing,
// and may be wrong about an entry that names no device.
std::int32_t GuessGpuCount(const EnvironmentMap& environment, const DeviceSources& sources);

// The NUMA node that the kernel says a GPU is at; -1: it says none, or the GPU's
// address is not known.
std::int32_t NumaNodeOf(const Gpu& gpu, const DeviceSources& sources);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_DEVICES_H_
