// Reads /proc/<pid>/task/<tid>/children where the kernel has it (one read a
// thread), else /proc/<pid>/stat of every process.
#include "launcher/process/process_tree.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/file_io.h"

namespace ddl {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDir>;

std::optional<pid_t> ParsePid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 0) {
    return std::nullopt;
  }
  return pid;
}

// The numeric entries of a directory of /proc.
std::vector<pid_t> NumericEntries(const std::string& path) {
  std::vector<pid_t> entries;
  const Directory dir(::opendir(path.c_str()));
  if (dir == nullptr) {
    return entries;
  }
  // readdir is safe: the stream belongs to this call.
  while (const dirent* const entry = ::readdir(dir.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (const std::optional<pid_t> pid = ParsePid(entry->d_name)) {
      entries.push_back(*pid);
    }
  }
  return entries;
}

std::string ReadProc(const std::string& path) {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20U;  // a million children
  return ReadFileUpTo(path, kMaxBytes).value_or("");
}

void AppendChildren(pid_t pid, std::vector<pid_t>& out) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const pid_t thread : NumericEntries(tasks)) {
    const std::string content = ReadProc(tasks + "/" + std::to_string(thread) + "/children");
    std::size_t at = 0;
    while (at < content.size()) {
      const std::size_t end = std::min(content.find(' ', at), content.size());
      if (const auto child = ParsePid(std::string_view(content).substr(at, end - at))) {
        out.push_back(*child);
      }
      at = end + 1;
    }
  }
}

// /proc/<pid>/stat from its third field on: "S 4711 ..."; empty: no such
// process. The second may hold anything, also blanks and brackets, so the count
// starts behind its last bracket.
std::string StatFromState(pid_t pid) {
  const std::string stat = ReadProc("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  constexpr std::size_t kFromNameToState = 2;   // ") "
  constexpr std::size_t kFromNameToParent = 4;  // ") S "
  if (name_end == std::string::npos || stat.size() < name_end + kFromNameToParent) {
    return {};
  }
  return stat.substr(name_end + kFromNameToState);
}

std::optional<pid_t> ParentOf(pid_t pid) {
  const std::string stat = StatFromState(pid);
  if (stat.empty()) {
    return std::nullopt;
  }
  constexpr std::size_t kFromStateToParent = 2;  // "S "
  const std::string_view rest = std::string_view(stat).substr(kFromStateToParent);
  return ParsePid(rest.substr(0, rest.find(' ')));
}

bool KernelListsChildren() {
  const std::string self = std::to_string(::getpid());
  return ::access(("/proc/" + self + "/task/" + self + "/children").c_str(), R_OK) == 0;
}

}  // namespace

std::vector<pid_t> DescendantsByScan(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : NumericEntries("/proc")) {
    if (const std::optional<pid_t> parent = ParentOf(pid)) {
      children.emplace(*parent, pid);
    }
  }
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto it = first; it != last; ++it) {
      found.push_back(it->second);
    }
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> Descendants(pid_t root) {
  if (!KernelListsChildren()) {
    return DescendantsByScan(root);
  }
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    AppendChildren(found[i], found);
  }
  found.erase(found.begin());
  return found;
}

char StateOf(pid_t pid) {
  const std::string stat = StatFromState(pid);
  return stat.empty() ? '?' : stat.front();
}

std::vector<pid_t> KillDescendants(pid_t root) {
  std::vector<pid_t> pids = Descendants(root);
  for (const pid_t pid : pids) {
    ::kill(pid, SIGKILL);
  }
  return pids;
}

}  // namespace ddl
