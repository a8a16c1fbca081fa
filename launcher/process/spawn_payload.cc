// Layout: three 32-bit counts (arguments, environment entries, bytes of the CPU
// mask), the mask, then zero-ended texts: the directory, each argument, each
// environment entry.
#include "launcher/process/spawn_payload.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"

namespace ddl {
namespace {

struct Header {
  std::uint32_t arguments = 0;
  std::uint32_t environment = 0;
  std::uint32_t cpu_mask_bytes = 0;
};

std::vector<cpu_set_t> MaskOf(const CpuList& cpus) {
  const std::size_t bits = cpus.empty() ? 0 : static_cast<std::size_t>(cpus.back()) + 1;
  std::vector<cpu_set_t> mask((bits + CPU_SETSIZE - 1) / CPU_SETSIZE);
  for (const std::int32_t cpu : cpus) {
    CPU_SET_S(static_cast<std::size_t>(cpu), mask.size() * sizeof(cpu_set_t), mask.data());
  }
  return mask;
}

bool HasZeroByte(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

void AppendText(const std::string& text, std::string& out) {
  out.append(text);
  out.push_back('\0');
}

}  // namespace

absl::StatusOr<UniqueFd> EncodeSpawnPayload(const std::vector<std::string>& argv,
                                            const std::vector<std::string>& env,
                                            const std::string& cwd, const CpuList& cpus) {
  const std::vector<cpu_set_t> mask = MaskOf(cpus);
  const std::size_t mask_bytes = mask.size() * sizeof(cpu_set_t);
  const Header header{static_cast<std::uint32_t>(argv.size()),
                      static_cast<std::uint32_t>(env.size()),
                      static_cast<std::uint32_t>(mask_bytes)};
  std::string bytes(sizeof(header) + mask_bytes, '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!mask.empty()) {
    std::memcpy(bytes.data() + sizeof(header), mask.data(), mask_bytes);
  }
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
  const int error = fd.valid() ? WriteAll(fd.get(), bytes) : errno;
  if (error != 0) {
    return absl::ResourceExhaustedError(
        ErrnoText("cannot hand a worker's arguments to the supervisor", error));
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
  if (header.cpu_mask_bytes > size_ - at || header.cpu_mask_bytes % sizeof(cpu_set_t) != 0) {
    errno = EBADMSG;
    return false;
  }
  cpu_mask_.resize(header.cpu_mask_bytes / sizeof(cpu_set_t));
  if (!cpu_mask_.empty()) {
    std::memcpy(cpu_mask_.data(), data_ + at, header.cpu_mask_bytes);
  }
  at += header.cpu_mask_bytes;
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
