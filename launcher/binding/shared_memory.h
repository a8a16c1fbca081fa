// Whether /dev/shm holds what training puts there: NCCL's and Gloo's buffers
// between processes, and the batches of PyTorch's data loaders. Containers often
// have a small one, and who writes beyond its end dies of SIGBUS.
#ifndef DDLAUNCH_LAUNCHER_BINDING_SHARED_MEMORY_H_
#define DDLAUNCH_LAUNCHER_BINDING_SHARED_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddl {

struct SharedMemory {
  std::int64_t bytes = 0;
  std::int64_t free_bytes = 0;
};

// Nothing: there is no such directory.
std::optional<SharedMemory> LookAtSharedMemory(const std::string& directory = "/dev/shm");

// A line that names the size and the remedy, or nothing where there is enough.
std::string SharedMemoryWarning(const std::string& directory = "/dev/shm");

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_SHARED_MEMORY_H_
