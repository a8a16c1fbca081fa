// Counting CPUs and GPUs: see devices.h.
#include "launcher/cli/devices.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

namespace ddl::cli {
namespace {

std::int32_t CountVisible(std::string_view list) {
  std::int32_t count = 0;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    while (entry.starts_with(' ')) {
      entry.remove_prefix(1);
    }
    if (entry.empty() || entry.starts_with('-')) {
      break;
    }
    ++count;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return count;
}

bool IsGpuFile(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) {
    return false;
  }
  const std::string_view number = name.substr(kPrefix.size());
  return std::all_of(number.begin(), number.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::int32_t CountCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  // More CPUs than the set has room for.
  return static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
}

std::int32_t CountGpus(const Environment& environment, const std::string& device_dir) {
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (visible != environment.end()) {
    return CountVisible(visible->second);
  }
  std::int32_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(device_dir, error), end; !error && it != end;
       it.increment(error)) {
    count += IsGpuFile(it->path().filename().native()) ? 1 : 0;
  }
  return count;
}

}  // namespace ddl::cli
