// Texts and the affinity of this process; see the header.
#include "launcher/binding/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <thread>

namespace ddl {
namespace {

constexpr std::size_t kFirstSize = 1024;                     // CPUs that the kernel knows
constexpr std::size_t kLargestSize = std::size_t{1} << 20U;  // far beyond any kernel

}  // namespace

std::string ToText(const CpuList& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) {
      text += "-" + std::to_string(cpus[last]);
    }
    i = last + 1;
  }
  return text;
}

// The kernel refuses a set that is smaller than its own (EINVAL), so it grows.
CpuList AllowedCpus() {
  for (std::size_t size = kFirstSize; size <= kLargestSize; size *= 2) {
    std::vector<cpu_set_t> sets(size / CPU_SETSIZE);
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, sets.data()) == 0) {
      CpuList cpus;
      for (std::size_t cpu = 0; cpu < size; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, sets.data())) {
          cpus.push_back(static_cast<std::int32_t>(cpu));
        }
      }
      return cpus;
    }
    if (errno != EINVAL) {
      break;
    }
  }
  return {};
}

std::int32_t UsableCpus() {
  const auto allowed = static_cast<std::int32_t>(AllowedCpus().size());
  return allowed > 0 ? allowed
                     : static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace ddl
