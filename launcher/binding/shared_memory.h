// Whether /dev/shm holds what training puts there: NCCL's and Gloo's buffers
// between processes, and the batches of PyTorch's data loaders. Containers often
// have a small one, and who writes beyond its end dies of SIGBUS.
#ifndef DDLAUNCH_LAUNCHER_BINDING_SHARED_MEMORY_H_
#define DDLAUNCH_LAUNCHER_BINDING_SHARED_MEMORY_H_

#include <string>

namespace ddl {

// A line that names the size and the remedy, or nothing where there is enough.
std::string SharedMemoryWarning(const std::string& directory = "/dev/shm");

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_SHARED_MEMORY_H_
