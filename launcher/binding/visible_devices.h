// CUDA_VISIBLE_DEVICES: which GPUs a program sees, and in which order. Pure.
//
// As in CUDA's programming guide: entries are indices, UUIDs or their beginnings
// ("GPU-8932"), MIG instances ("MIG-..."); the first one that names no device
// (-1 is the usual way) ends the list; an empty list shows none. A list that
// names a device twice shows none at all (observed by PyTorch's reader of it,
// torch/cuda/__init__.py).
#ifndef DDLAUNCH_LAUNCHER_BINDING_VISIBLE_DEVICES_H_
#define DDLAUNCH_LAUNCHER_BINDING_VISIBLE_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/binding/nvml.h"

namespace ddl {

struct VisibleDevice {
  std::string entry;               // as it is written in the list
  std::optional<std::size_t> gpu;  // which of the machine's; not set: not known
};

struct VisibleDevices {
  std::vector<VisibleDevice> devices;  // up to where the list ends
  std::string ended_by;                // the entry that names no device; empty: none did
  std::string twice;                   // an entry that names a device again; empty: none
  // What a program that is given the whole list sees.
  [[nodiscard]] std::int32_t count() const {
    return twice.empty() ? static_cast<std::int32_t>(devices.size()) : 0;
  }
};

// `gpus` are the machine's; null: not known, entries are then taken at their word.
VisibleDevices ReadVisibleDevices(std::string_view list, const std::vector<Gpu>* gpus);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_VISIBLE_DEVICES_H_
