// Sets of CPUs by the kernel's numbers, and this process's own.
#ifndef DDLAUNCH_LAUNCHER_BINDING_CPU_LIST_H_
#define DDLAUNCH_LAUNCHER_BINDING_CPU_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ddl {

// In rising order, each once.
using CpuList = std::vector<std::int32_t>;

// "0-3,8,10-11", as in sysfs and for taskset -c; "" for none.
std::string ToText(const CpuList& cpus);

// The CPUs this process may run on: its affinity, which is never more than its
// cpuset. Empty: the kernel does not say. Thread safe.
CpuList AllowedCpus();

// How many these are; where the kernel does not say, all that are online. At
// least 1.
std::int32_t UsableCpus();

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_BINDING_CPU_LIST_H_
