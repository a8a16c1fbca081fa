// Own declarations of the few calls that are needed, as in NVIDIA's NVML API
// reference; these have not changed since driver 418 (MIG's: since 450).
#include "launcher/binding/nvml.h"

#include <dlfcn.h>

#include <array>
#include <cctype>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"

namespace ddl {
namespace {

using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr unsigned kNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

// nvmlPciInfo_t
struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  std::array<char, 32> bus_id;
};

// nvmlMemory_t
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Calls {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*pci_info)(Device, PciInfo*) = nullptr;
  // Null in drivers older than MIG.
  int (*max_mig_count)(Device, unsigned*) = nullptr;
  int (*mig_handle)(Device, unsigned, Device*) = nullptr;
  // For OpenGpuMemory only.
  int (*handle_by_uuid)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
};

template <typename Function>
bool Find(void* library, const char* name, Function*& call) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): dlsym's contract.
  call = reinterpret_cast<Function*>(::dlsym(library, name));
  return call != nullptr;
}

absl::StatusOr<Calls> Load(const std::string& name) {
  // Stays loaded: a driver's library does not always survive being closed.
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("no NVIDIA driver library ", name));
  }
  Calls calls;
  const bool whole = Find(library, "nvmlInit_v2", calls.init) &&
                     Find(library, "nvmlShutdown", calls.shutdown) &&
                     Find(library, "nvmlErrorString", calls.error_string) &&
                     Find(library, "nvmlDeviceGetCount_v2", calls.count) &&
                     Find(library, "nvmlDeviceGetHandleByIndex_v2", calls.handle) &&
                     Find(library, "nvmlDeviceGetUUID", calls.uuid) &&
                     Find(library, "nvmlDeviceGetName", calls.name) &&
                     Find(library, "nvmlDeviceGetPciInfo_v3", calls.pci_info);
  if (!whole) {
    return absl::UnavailableError(absl::StrCat(name, " is too old: it lacks calls of NVML"));
  }
  Find(library, "nvmlDeviceGetMaxMigDeviceCount", calls.max_mig_count);
  Find(library, "nvmlDeviceGetMigDeviceHandleByIndex", calls.mig_handle);
  Find(library, "nvmlDeviceGetHandleByUUID", calls.handle_by_uuid);
  Find(library, "nvmlDeviceGetMemoryInfo", calls.memory);
  return calls;
}

absl::Status Failed(const Calls& calls, const char* what, int result) {
  return absl::UnavailableError(
      absl::StrCat("the NVIDIA driver, ", what, ": ", calls.error_string(result)));
}

template <unsigned kBytes>
std::string Text(int (*call)(Device, char*, unsigned), Device device) {
  std::array<char, kBytes> text{};
  if (call(device, text.data(), kBytes) != kSuccess) {
    return "";
  }
  text.back() = '\0';
  return text.data();
}

// NVML writes the domain with eight digits, sysfs with four (or more, where it
// needs them).
std::string PciAddress(const Calls& calls, Device device) {
  PciInfo info{};
  if (calls.pci_info(device, &info) != kSuccess) {
    return "";
  }
  constexpr std::size_t kLongest = 40;
  std::array<char, kLongest> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
  return text.data();
}

std::vector<std::string> MigUuids(const Calls& calls, Device device) {
  std::vector<std::string> uuids;
  unsigned slots = 0;
  if (calls.max_mig_count == nullptr || calls.mig_handle == nullptr ||
      calls.max_mig_count(device, &slots) != kSuccess) {
    return uuids;
  }
  for (unsigned i = 0; i < slots; ++i) {
    Device instance = nullptr;
    if (calls.mig_handle(device, i, &instance) == kSuccess) {  // else the slot is empty
      uuids.push_back(Text<kUuidBytes>(calls.uuid, instance));
    }
  }
  return uuids;
}

absl::StatusOr<std::vector<Gpu>> ReadAll(const Calls& calls) {
  unsigned count = 0;
  if (const int result = calls.count(&count); result != kSuccess) {
    return Failed(calls, "counting GPUs", result);
  }
  std::vector<Gpu> gpus(count);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (calls.handle(i, &device) != kSuccess) {
      continue;  // it counts, but is lost or not ours: nothing is known of it
    }
    gpus[i].uuid = Text<kUuidBytes>(calls.uuid, device);
    gpus[i].name = Text<kNameBytes>(calls.name, device);
    gpus[i].pci_address = PciAddress(calls, device);
    gpus[i].mig_uuids = MigUuids(calls, device);
  }
  return gpus;
}

class NvmlMemoryReader final : public GpuMemoryReader {
 public:
  NvmlMemoryReader(const Calls& calls, Device device) : calls_(calls), device_(device) {}
  ~NvmlMemoryReader() override { calls_.shutdown(); }
  NvmlMemoryReader(const NvmlMemoryReader&) = delete;
  NvmlMemoryReader& operator=(const NvmlMemoryReader&) = delete;

  absl::StatusOr<GpuMemory> Read() override {
    Memory memory{};
    if (const int result = calls_.memory(device_, &memory); result != kSuccess) {
      return Failed(calls_, "reading a GPU's memory", result);
    }
    return GpuMemory{static_cast<std::int64_t>(memory.total),
                     static_cast<std::int64_t>(memory.used)};
  }

 private:
  const Calls calls_;
  const Device device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuMemoryReader>> OpenGpuMemory(const std::string& library,
                                                               const std::string& uuid) {
  DDL_ASSIGN_OR_RETURN(const Calls calls, Load(library));
  if (calls.handle_by_uuid == nullptr || calls.memory == nullptr) {
    return absl::UnavailableError(absl::StrCat(library, " is too old: it lacks calls of NVML"));
  }
  if (const int result = calls.init(); result != kSuccess) {
    return Failed(calls, "starting NVML", result);
  }
  Device device = nullptr;
  if (const int result = calls.handle_by_uuid(uuid.c_str(), &device); result != kSuccess) {
    calls.shutdown();
    return Failed(calls, uuid.c_str(), result);
  }
  return std::make_unique<NvmlMemoryReader>(calls, device);
}

absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& library) {
  DDL_ASSIGN_OR_RETURN(const Calls calls, Load(library));
  if (const int result = calls.init(); result != kSuccess) {
    return Failed(calls, "starting NVML", result);
  }
  absl::StatusOr<std::vector<Gpu>> gpus = ReadAll(calls);
  calls.shutdown();
  return gpus;
}

}  // namespace ddl
