// One statvfs(3).
#include "launcher/binding/shared_memory.h"

#include <sys/statvfs.h>

#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace ddl {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
// Docker's default size, below which nobody goes by intent.
constexpr std::uint64_t kSmall = 64 * kMiB;
// Less than a few of NCCL's segments (up to 10 MB a connection).
constexpr std::uint64_t kNearlyFull = 16 * kMiB;

constexpr char kRemedy[] =
    "NCCL and data loaders put their buffers there and die of SIGBUS when it is full; ";
constexpr char kEnlarge[] =
    "enlarge it (mount -o remount,size=8G /dev/shm; docker run --shm-size=8g; Kubernetes: an "
    "emptyDir of medium Memory)";

std::string MiB(std::uint64_t bytes) {
  return absl::StrCat((bytes + kMiB / 2) / kMiB, " MiB");
}

}  // namespace

std::string SharedMemoryWarning(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) {
    return absl::StrCat("there is no ", directory,
                        ": programs that share memory, NCCL among them, will fail; mount a tmpfs "
                        "there");
  }
  const std::uint64_t size = std::uint64_t{info.f_blocks} * info.f_frsize;
  const std::uint64_t available = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (size < kSmall) {
    return absl::StrCat(directory, " holds only ", MiB(size), ": ", kRemedy, kEnlarge);
  }
  if (available < kNearlyFull) {
    return absl::StrCat(directory, " has only ", MiB(available), " of ", MiB(size),
                        " left: ", kRemedy, "remove what jobs that were killed left behind, or ",
                        kEnlarge);
  }
  return "";
}

}  // namespace ddl
