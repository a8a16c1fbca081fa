// What this node says of its memory: how many processes the kernel killed for want
// of it, and how full the shared memory is. Thread safe; reads a few small files of
// the kernel's, which do not wait.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_MEMORY_FACTS_H_
#define DDLAUNCH_LAUNCHER_FAILURES_MEMORY_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddl {

// Each is unset where the kernel does not tell.
struct MemoryFacts {
  // Kills by the out-of-memory killer since the start: of processes in this
  // process's control group (and, with cgroup v2, below), and on the whole host.
  std::optional<std::int64_t> group_oom_kills;
  std::optional<std::int64_t> host_oom_kills;
  std::optional<std::int64_t> group_limit_bytes;
  std::optional<std::int64_t> shm_bytes;  // the size of /dev/shm
  std::optional<std::int64_t> shm_free_bytes;
};

[[nodiscard]] MemoryFacts ReadMemoryFacts();

// ---- its parts, for tests --------------------------------------------------------

// The number after `key` at the start of a line: "oom_kill 3".
[[nodiscard]] std::optional<std::int64_t> NumberAfter(std::string_view text, std::string_view key);

// Where the control group's memory files are, by /proc/self/cgroup: with a
// controller named memory it is cgroup v1's.
struct MemoryGroup {
  bool v1 = false;
  std::string path;  // "/slurm/job_1"
};
[[nodiscard]] std::optional<MemoryGroup> FindMemoryGroup(std::string_view proc_self_cgroup);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_MEMORY_FACTS_H_
