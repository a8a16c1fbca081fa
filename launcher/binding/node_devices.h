// Whether this node has anything to compute on but CPUs.
#ifndef DDLAUNCH_LAUNCHER_BINDING_NODE_DEVICES_H_
#define DDLAUNCH_LAUNCHER_BINDING_NODE_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/binding/devices.h"

namespace ddl {

struct NodeDevices {
  std::int32_t num_gpus = 0;    // NVIDIA's, that a worker sees
  bool no_accelerator = false;  // for certain: no GPU, TPU or the like of any maker
};

// By CUDA_VISIBLE_DEVICES in `environment` ("NAME=value" each) and the device files.
// Of a kind that is not known here it says that there may be one. Costs a look into
// /dev; no library is loaded.
NodeDevices LookAtDevices(const std::vector<std::string>& environment,
                          const DeviceSources& sources);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_NODE_DEVICES_H_
