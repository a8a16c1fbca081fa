// How many devices this node has for workers. Read-only.
#ifndef DDLAUNCH_LAUNCHER_CLI_DEVICES_H_
#define DDLAUNCH_LAUNCHER_CLI_DEVICES_H_

#include <cstdint>
#include <string>

#include "launcher/cli/arguments.h"

namespace ddl::cli {

// The CPUs this process may run on (its cpuset), at least 1.
std::int32_t CountCpus();

// The entries of CUDA_VISIBLE_DEVICES (indices or UUIDs, never interpreted; an
// entry of -1 ends the list, as in CUDA), or, where that is not set, the device
// files nvidia0, nvidia1, ... in `device_dir`.
std::int32_t CountGpus(const Environment& environment, const std::string& device_dir);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_DEVICES_H_
