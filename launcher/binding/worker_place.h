// Where one worker of this node runs: what launcher/binding finds out and the
// start of a worker applies.
#ifndef DDLAUNCH_LAUNCHER_BINDING_WORKER_PLACE_H_
#define DDLAUNCH_LAUNCHER_BINDING_WORKER_PLACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/binding/cpu_list.h"

namespace ddl {

// How workers are bound to CPUs, in torchrun's words.
enum class NumaBinding : std::uint8_t {
  kNone,
  kNode,         // the CPUs of the GPU's NUMA node
  kSocket,       // of the socket that this NUMA node is in
  kExclusive,    // an own share of the node's cores, split among the GPUs there
  kCoreComplex,  // the cores below one L3 cache of the node, another for each GPU there
};

struct WorkerPlace {
  CpuList cpus;              // empty: wherever this process may run
  std::int32_t threads = 0;  // that fit on them; 0: not bound
  // Environment entries ("NAME=value") that show it its one GPU; empty: it sees
  // what its parent sees.
  std::vector<std::string> devices;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_WORKER_PLACE_H_
