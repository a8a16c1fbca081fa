// One statvfs(3).
#include "launcher/binding/shared_memory.h"

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"
#include "agent/base/size_text.h"

namespace ddl {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
// Docker's default size, below which nobody goes by intent.
constexpr std::int64_t kSmall = 64 * kMiB;
// Less than a few of NCCL's segments (up to 10 MB a connection).
constexpr std::int64_t kNearlyFull = 16 * kMiB;

constexpr char kRemedy[] =
    "NCCL and data loaders put their buffers there and die of SIGBUS when it is full; ";
constexpr char kEnlarge[] =
    "enlarge it (mount -o remount,size=8G /dev/shm; docker run --shm-size=8g; Kubernetes: an "
    "emptyDir of medium Memory)";

}  // namespace

std::optional<SharedMemory> LookAtSharedMemory(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) {
    return std::nullopt;
  }
  return SharedMemory{static_cast<std::int64_t>(info.f_blocks * info.f_frsize),
                      static_cast<std::int64_t>(info.f_bavail * info.f_frsize)};
}

std::string SharedMemoryWarning(const std::string& directory) {
  const auto memory = LookAtSharedMemory(directory);
  if (!memory.has_value()) {
    return absl::StrCat("there is no ", directory,
                        ": programs that share memory, NCCL among them, will fail; mount a tmpfs "
                        "there");
  }
  if (memory->bytes < kSmall) {
    return absl::StrCat(directory, " holds only ", SizeText(memory->bytes), ": ", kRemedy,
                        kEnlarge);
  }
  if (memory->free_bytes < kNearlyFull) {
    return absl::StrCat(directory, " has only ", SizeText(memory->free_bytes), " of ",
                        SizeText(memory->bytes), " left: ", kRemedy,
                        "remove what jobs that were killed left behind, or ", kEnlarge);
  }
  return "";
}

}  // namespace ddl
