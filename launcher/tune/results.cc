// Files of --tune-dir: see results.h.
#include "launcher/tune/results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"
#include "agent/base/status_macros.h"

namespace ddl::tune {
namespace {

constexpr int kFileMode = 0666;
constexpr int kDirectoryMode = 0777;

absl::Status WriteTo(const std::string& path, std::string_view text, int how) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, kFileMode));
  const int error = fd.valid() ? WriteAll(fd.get(), text) : errno;
  return error == 0 ? absl::OkStatus()
                    : absl::InternalError(ErrnoText("cannot write " + path, error));
}

absl::Status MakeDirectory(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
      return absl::InternalError(ErrnoText("--tune-dir: cannot make " + part, errno));
    }
    if (at == std::string::npos) {
      return absl::OkStatus();
    }
  }
}

}  // namespace

absl::Status Results::Open() {
  DDL_RETURN_IF_ERROR(MakeDirectory(directory_));
  claim_.reset(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!claim_.valid()) {
    return absl::InternalError(ErrnoText("--tune-dir: cannot use " + directory_, errno));
  }
  if (::flock(claim_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::InternalError(
        absl::StrCat("another ddlaunch tune writes to ", directory_, "; give another --tune-dir"));
  }
  ::rename(PathOf("tune.yaml").c_str(), PathOf("tune.yaml.old").c_str());
  for (const char* const picture : {"tune.svg", "tune.png"}) {
    Remove(picture);
  }
  return absl::OkStatus();
}

std::string Results::PathOf(std::string_view name) const {
  return absl::StrCat(directory_, "/", std::string(name));
}

absl::Status Results::Write(std::string_view name, std::string_view text) const {
  absl::Status written = WriteTo(PathOf(name), text, O_TRUNC);
  if (!written.ok()) {
    Remove(name);
  }
  return written;
}

absl::Status Results::Append(std::string_view name, std::string_view text) const {
  return WriteTo(PathOf(name), text, O_APPEND);
}

void Results::Remove(std::string_view name) const {
  ::unlink(PathOf(name).c_str());
}

bool IsDiskFull(const std::string& directory) {
  struct statvfs about {};
  if (::statvfs(directory.c_str(), &about) != 0 || about.f_blocks == 0) {
    return false;
  }
  return (::geteuid() == 0 ? about.f_bfree : about.f_bavail) == 0;
}

}  // namespace ddl::tune
