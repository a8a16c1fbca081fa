// One program run by tune: a trial's ddlaunch, or gnuplot. It has a process group of
// its own, so that Ctrl-C at the terminal reaches tune only; reads /dev/null; gets
// SIGTERM when tune dies.
#ifndef DDLAUNCH_LAUNCHER_TUNE_CHILD_H_
#define DDLAUNCH_LAUNCHER_TUNE_CHILD_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"

namespace ddl::tune {

class Child {
 public:
  struct Options {
    // argv[0] is looked for on the PATH, unless `path` says what to execute.
    std::vector<std::string> argv;
    std::string path;
    std::vector<std::string> environment;  // "NAME=value"
    std::string cwd;                       // empty: the caller's
    std::string output;                    // a file for stdout and stderr; written anew
  };

  // REQUIRES: this process has one thread (it forks).
  // Errors: INTERNAL, the output cannot be written, or no process can be made. That
  // the program cannot be executed is its exit code, 127.
  static absl::StatusOr<Child> Start(const Options& options);
  // Kills it if it still runs.
  ~Child();
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child& operator=(Child&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }  // readable: it has ended
  void Signal(int signal) const;
  // Its exit code, 128 + N for a death by signal N; nothing: it still runs.
  std::optional<int> TryReap();

 private:
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;       // -1: it was reaped, or moved away
  UniqueFd pidfd_;  // invalid also where the kernel has none
};

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_CHILD_H_
