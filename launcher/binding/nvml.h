// The GPUs of this machine, by NVIDIA's management library. It is loaded at run
// time, and only for those who ask; the program links none of it.
#ifndef DDLAUNCH_LAUNCHER_BINDING_NVML_H_
#define DDLAUNCH_LAUNCHER_BINDING_NVML_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddl {

struct Gpu {
  std::string uuid;         // "GPU-8932f937-..."; empty: the driver does not say
  std::string name;         // the model
  std::string pci_address;  // as in sysfs, "0000:dc:00.0"; empty: not known
  // Of each MIG instance: "MIG-..."; empty: none, or MIG is off.
  std::vector<std::string> mig_uuids;
};

// In the order of the PCI bus, which is what indices in CUDA_VISIBLE_DEVICES mean
// under CUDA_DEVICE_ORDER=PCI_BUS_ID. `library` is for dlopen(3). Loads the
// driver's library, which can take a second. Thread safe.
// Errors: NOT_FOUND, there is no such library; UNAVAILABLE, it finds no driver or
// fails; the text says so in NVML's words.
absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& library);

struct GpuMemory {
  std::int64_t total_bytes = 0;
  std::int64_t used_bytes = 0;  // by all processes
};

// Asks one GPU (or MIG instance) for its memory, again and again. Not thread safe.
class GpuMemoryReader {
 public:
  virtual ~GpuMemoryReader() = default;
  // UNAVAILABLE: the driver fails.
  virtual absl::StatusOr<GpuMemory> Read() = 0;
};

// By its UUID, "GPU-..." or "MIG-...". Errors: as ListGpus; UNAVAILABLE also for a
// UUID that is none of this machine's.
absl::StatusOr<std::unique_ptr<GpuMemoryReader>> OpenGpuMemory(const std::string& library,
                                                               const std::string& uuid);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_NVML_H_
