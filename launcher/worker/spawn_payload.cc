// Layout: two 32-bit counts (arguments, environment entries), then zero-ended
// texts: the directory, each argument, each environment entry.
#include "launcher/worker/spawn_payload.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "launcher/worker/errno_text.h"

namespace ddl {
namespace {

struct Header {
  std::uint32_t arguments = 0;
  std::uint32_t environment = 0;
};

bool HasZeroByte(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

void AppendText(const std::string& text, std::string& out) {
  out.append(text);
  out.push_back('\0');
}

bool WriteAll(int fd, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR) {
      return false;
    }
    done += n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

absl::StatusOr<UniqueFd> EncodeSpawnPayload(const std::vector<std::string>& argv,
                                            const std::vector<std::string>& env,
                                            const std::string& cwd) {
  const Header header{static_cast<std::uint32_t>(argv.size()),
                      static_cast<std::uint32_t>(env.size())};
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  AppendText(cwd, bytes);
  for (const std::vector<std::string>* const list : {&argv, &env}) {
    for (const std::string& text : *list) {
      if (HasZeroByte(text)) {
        return absl::InvalidArgumentError(
            "an argument or environment entry of the program has a zero byte inside");
      }
      AppendText(text, bytes);
    }
  }
  UniqueFd fd(::memfd_create("ddlaunch-spawn", MFD_CLOEXEC));
  if (!fd.valid() || !WriteAll(fd.get(), bytes)) {
    return absl::ResourceExhaustedError(
        ErrnoText("cannot hand a worker's arguments to the supervisor", errno));
  }
  return fd;
}

SpawnPayload::~SpawnPayload() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

bool SpawnPayload::Map(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return false;
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ <= sizeof(Header)) {
    errno = EBADMSG;
    return false;
  }
  void* const mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED) {
    return false;
  }
  data_ = static_cast<char*>(mapped);

  Header header;
  std::memcpy(&header, data_, sizeof(header));
  std::size_t at = sizeof(header);
  const auto next = [&]() -> char* {
    const void* const end = at < size_ ? std::memchr(data_ + at, '\0', size_ - at) : nullptr;
    if (end == nullptr) {
      return nullptr;
    }
    char* const text = data_ + at;
    at += std::strlen(text) + 1;
    return text;
  };
  cwd_ = next();
  for (std::uint32_t i = 0; i < header.arguments; ++i) {
    argv_.push_back(next());
  }
  for (std::uint32_t i = 0; i < header.environment; ++i) {
    env_.push_back(next());
  }
  argv_.push_back(nullptr);
  env_.push_back(nullptr);
  if (cwd_ == nullptr || header.arguments == 0 || at != size_) {
    cwd_ = "";
    errno = EBADMSG;
    return false;
  }
  return true;
}

}  // namespace ddl
