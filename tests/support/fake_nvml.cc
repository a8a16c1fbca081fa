// A stand-in for NVIDIA's management library, for machines without a GPU: the
// calls of launcher/binding/nvml.cc with NVML's names, over a machine that the
// file named by DDL_FAKE_NVML describes. A line a GPU:
//   UUID|MODEL|DOMAIN:BUS:DEVICE in hexadecimal|MIG UUID|MIG UUID ...
// "lost" alone is a GPU without a handle; an empty MIG UUID an empty slot. No
// such file: the driver is not loaded. The file named by DDL_FAKE_NVML_MEMORY has the
// bytes in all and in use, of every GPU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

enum Result { kSuccess = 0, kNotSupported = 3, kNotFound = 6, kDriverNotLoaded = 9, kLost = 15 };

struct Device {
  std::string uuid;
  std::string model;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  std::vector<Device> instances;
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

std::vector<Device>& Devices() {
  static std::vector<Device> devices;
  return devices;
}

Device Parse(const std::string& line) {
  Device device;
  std::istringstream fields(line);
  std::string field;
  std::getline(fields, device.uuid, '|');
  std::getline(fields, device.model, '|');
  std::getline(fields, field, '|');
  std::sscanf(field.c_str(), "%x:%x:%x", &device.domain, &device.bus, &device.device);
  while (std::getline(fields, field, '|')) {
    device.instances.push_back({field, "", 0, 0, 0, {}});
  }
  return device;
}

int Copy(const std::string& text, char* out, unsigned size) {
  std::snprintf(out, size, "%s", text.c_str());
  return kSuccess;
}

Device* Of(void* handle) {
  return static_cast<Device*>(handle);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* const path = std::getenv("DDL_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  if (!file) {
    return kDriverNotLoaded;
  }
  Devices().clear();
  for (std::string line; std::getline(file, line);) {
    Devices().push_back(Parse(line));
  }
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
const char* nvmlErrorString(int result) {
  return result == kDriverNotLoaded ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Devices().size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (Devices().at(index).uuid == "lost") {
    return kLost;
  }
  *handle = &Devices().at(index);
  return kSuccess;
}
int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  return Copy(Of(handle)->uuid, out, size);
}
int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  return Copy(Of(handle)->model, out, size);
}
int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  *info = {};
  info->domain = Of(handle)->domain;
  info->bus = Of(handle)->bus;
  info->device = Of(handle)->device;
  std::snprintf(info->bus_id, sizeof(info->bus_id), "%08X:%02X:%02X.0", info->domain, info->bus,
                info->device);
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* count) {
  *count = static_cast<unsigned>(Of(handle)->instances.size());
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** instance) {
  Device& device = Of(handle)->instances.at(index);
  if (device.uuid.empty()) {
    return kNotFound;
  }
  *instance = &device;
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  for (Device& device : Devices()) {
    if (device.uuid == uuid) {
      *handle = &device;
      return kSuccess;
    }
    for (Device& instance : device.instances) {
      if (instance.uuid == uuid) {
        *handle = &instance;
        return kSuccess;
      }
    }
  }
  return kNotFound;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  const char* const path = std::getenv("DDL_FAKE_NVML_MEMORY");
  std::ifstream file(path == nullptr ? "" : path);
  if (handle == nullptr || !(file >> memory->total >> memory->used)) {
    return kNotSupported;
  }
  memory->free = memory->total - memory->used;
  return kSuccess;
}

}  // extern "C"
