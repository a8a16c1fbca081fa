// PrivateDirectory: a new directory that only this user can enter (mode 0700),
// removed with what is in it at the end. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_GATEWAY_PRIVATE_DIRECTORY_H_
#define DDLAUNCH_LAUNCHER_GATEWAY_PRIVATE_DIRECTORY_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ddl {

class PrivateDirectory {
 public:
  PrivateDirectory() = default;
  // Under $XDG_RUNTIME_DIR if it is there, else /tmp. Its path is short: that
  // of a Unix socket has at most 107 characters. UNAVAILABLE: it cannot be
  // made; each try is named with the reason.
  static absl::StatusOr<PrivateDirectory> Make();

  PrivateDirectory(PrivateDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  PrivateDirectory& operator=(PrivateDirectory&& other) noexcept;
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory() { Remove(); }

  [[nodiscard]] const std::string& path() const { return path_; }
  void Remove();

 private:
  std::string path_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_GATEWAY_PRIVATE_DIRECTORY_H_
