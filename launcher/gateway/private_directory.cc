// A directory of mode 0700.
#include "launcher/gateway/private_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddl {

absl::StatusOr<PrivateDirectory> PrivateDirectory::Make() {
  std::vector<std::string> parents;
  constexpr std::size_t kMaxParentLength = 60;
  // gRPC reads the socket's path as part of a URI: nothing that means something
  // there (%, #, ?).
  constexpr std::string_view kPlain =
      "/ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (const char* runtime_dir = std::getenv("XDG_RUNTIME_DIR");
      runtime_dir != nullptr && *runtime_dir == '/' &&
      std::strlen(runtime_dir) < kMaxParentLength &&
      std::string_view(runtime_dir).find_first_not_of(kPlain) == std::string_view::npos) {
    parents.emplace_back(runtime_dir);
  }
  parents.emplace_back("/tmp");
  std::string problems;
  for (const std::string& parent : parents) {
    std::string path = absl::StrCat(parent, "/ddlaunch-XXXXXX");
    if (::mkdtemp(path.data()) != nullptr) {
      PrivateDirectory made;
      made.path_ = std::move(path);
      return made;
    }
    absl::StrAppend(&problems, problems.empty() ? "" : "; ", path, ": ", std::strerror(errno));
  }
  return absl::UnavailableError(
      absl::StrCat("cannot make a directory for the worker gateway's socket: ", problems));
}

PrivateDirectory& PrivateDirectory::operator=(PrivateDirectory&& other) noexcept {
  if (this != &other) {
    Remove();
    path_ = std::exchange(other.path_, "");
  }
  return *this;
}

void PrivateDirectory::Remove() {
  if (!path_.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    path_.clear();
  }
}

}  // namespace ddl
