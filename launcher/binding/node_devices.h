// Whether this node has anything to compute on but CPUs.
#ifndef DDLAUNCH_LAUNCHER_BINDING_NODE_DEVICES_H_
#define DDLAUNCH_LAUNCHER_BINDING_NODE_DEVICES_H_

#include <cstdint>
#include <string>

namespace ddl {

struct NodeDevices {
  std::int32_t num_gpus = 0;    // NVIDIA's, that a worker sees
  bool no_accelerator = false;  // for certain: no GPU, TPU or the like of any maker
};

// By the device files in `device_dir` ("/dev"). Of a kind that is not known here
// it says that there may be one.
NodeDevices LookAtDevices(std::int32_t num_gpus, const std::string& device_dir);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_NODE_DEVICES_H_
