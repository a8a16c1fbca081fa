// The kernel's own files do not tell their size, so reading grows with what comes.
#include "agent/base/file_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/base/unique_fd.h"

namespace ddl {

int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::string ReadUpTo(int fd, std::size_t max_bytes) {
  constexpr std::size_t kStep = 4096;
  std::string content;
  std::size_t size = 0;
  while (size < max_bytes) {
    if (size == content.size()) {
      content.resize(std::min(max_bytes, std::max(kStep, 2 * size)));
    }
    const ssize_t n = ::read(fd, content.data() + size, content.size() - size);
    if (n > 0) {
      size += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      break;
    }
  }
  content.resize(size);
  return content;
}

std::optional<std::string> ReadFileUpTo(const std::string& path, std::size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() ? std::optional(ReadUpTo(fd.get(), max_bytes)) : std::nullopt;
}

}  // namespace ddl
