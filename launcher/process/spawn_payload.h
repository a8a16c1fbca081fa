// What a worker is started with (arguments, environment, directory), carried
// from ddlaunch to its supervisor in an anonymous memory file: a message on a
// socket could not hold the 2 MB that execve(2) takes.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_SPAWN_PAYLOAD_H_
#define DDLAUNCH_LAUNCHER_PROCESS_SPAWN_PAYLOAD_H_

#include <sched.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"
#include "launcher/binding/cpu_list.h"

namespace ddl {

// `cwd` empty: the supervisor's, which is ddlaunch's; `cpus` empty: not bound. argv[0] is the
// program's path. Errors: RESOURCE_EXHAUSTED, no descriptor or memory for it; INVALID_ARGUMENT, a
// zero byte inside a text.
absl::StatusOr<UniqueFd> EncodeSpawnPayload(const std::vector<std::string>& argv,
                                            const std::vector<std::string>& env,
                                            const std::string& cwd, const CpuList& cpus);

// The receiver's view: pointers into the mapped file, fit for execve(2).
class SpawnPayload {
 public:
  SpawnPayload() = default;
  ~SpawnPayload();
  SpawnPayload(const SpawnPayload&) = delete;
  SpawnPayload& operator=(const SpawnPayload&) = delete;

  // False if the file cannot be mapped (errno says why) or is not whole.
  [[nodiscard]] bool Map(int fd);

  // Both end with a null pointer.
  [[nodiscard]] char* const* argv() const { return argv_.data(); }
  [[nodiscard]] char* const* env() const { return env_.data(); }
  // Null: stay where the supervisor is.
  [[nodiscard]] const char* cwd() const { return *cwd_ == '\0' ? nullptr : cwd_; }
  // For sched_setaffinity(2); empty: not bound.
  [[nodiscard]] const std::vector<cpu_set_t>& cpu_mask() const { return cpu_mask_; }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  const char* cwd_ = "";
  std::vector<cpu_set_t> cpu_mask_;
  std::vector<char*> argv_;
  std::vector<char*> env_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_SPAWN_PAYLOAD_H_
