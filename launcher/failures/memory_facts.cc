// cgroup v2: memory.events counts `oom_kill`, v1: memory.oom_control does; the
// host's count is in /proc/vmstat (Linux 4.13 and later). The kernel counts before
// it kills. A container may see its own group as the root of the mount, while
// /proc/self/cgroup has the host's path: then the root is what is meant.
#include "launcher/failures/memory_facts.h"

#include <charconv>
#include <cstddef>

#include "agent/base/file_io.h"
#include "launcher/binding/shared_memory.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

constexpr std::string_view kMount = "/sys/fs/cgroup";
// cgroup v1 says "no limit" by a number of this order.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60U;

// Empty: it is not there.
std::string Content(const std::string& path) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 10U;
  return ReadFileUpTo(path, kMaxBytes).value_or("");
}

std::optional<std::int64_t> Number(std::string_view text) {
  std::int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

void ReadGroup(MemoryFacts& facts) {
  const auto group = FindMemoryGroup(Content("/proc/self/cgroup"));
  if (!group.has_value()) {
    return;
  }
  const std::string mount = std::string(kMount) + (group->v1 ? "/memory" : "");
  const std::string counts = group->v1 ? "/memory.oom_control" : "/memory.events";
  const std::string limit = group->v1 ? "/memory.limit_in_bytes" : "/memory.max";
  for (const std::string& directory : {mount + group->path, mount}) {
    facts.group_oom_kills = NumberAfter(Content(directory + counts), "oom_kill");
    if (facts.group_oom_kills.has_value()) {
      facts.group_limit_bytes = Number(Content(directory + limit));  // "max": none
      if (facts.group_limit_bytes.value_or(0) >= kNoLimit) {
        facts.group_limit_bytes.reset();
      }
      return;
    }
  }
}

}  // namespace

std::optional<std::int64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (const std::string_view line : LinesOf(text)) {
    if (line.substr(0, key.size()) == key && line.size() > key.size() && line[key.size()] == ' ') {
      return Number(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

// "4:memory:/path" (v1; the middle may be a list) or "0::/path" (v2).
std::optional<MemoryGroup> FindMemoryGroup(std::string_view proc_self_cgroup) {
  std::optional<MemoryGroup> found;
  for (const std::string_view line : LinesOf(proc_self_cgroup)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string path(line.substr(second + 1));
    if (controllers.find(",memory,") != std::string::npos) {
      return MemoryGroup{true, path};
    }
    if (controllers == ",,") {
      found = MemoryGroup{false, path};
    }
  }
  return found;
}

MemoryFacts ReadMemoryFacts() {
  MemoryFacts facts;
  ReadGroup(facts);
  facts.host_oom_kills = NumberAfter(Content("/proc/vmstat"), "oom_kill");
  if (const auto shm = LookAtSharedMemory(); shm.has_value() && shm->bytes > 0) {
    facts.shm_bytes = shm->bytes;
    facts.shm_free_bytes = shm->free_bytes;
  }
  return facts;
}

}  // namespace ddl
