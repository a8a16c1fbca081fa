// One sum of who needs what.
#include "launcher/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddl {
namespace {

constexpr char kRemedy[] = "raise it (ulimit -Hn, or LimitNOFILE= of the service)";

// gRPC, the standard streams, pipes and event descriptors, with some to spare.
constexpr rlim_t kOwn = 48;
// Two pipes' read ends, and two files.
constexpr rlim_t kPerWorker = 4;
// On the way to the supervisor, should its request have to wait for room there:
// they come and go.
constexpr rlim_t kPerWaitingWorker = 4;
// A node has one connection to the coordinator, and its workers two each to the
// store (1.13's): of what is left, the nodes get this part at most.
constexpr rlim_t kNodesPart = 3;
// The store is served with fewer than anybody needs, too.
constexpr rlim_t kLeastForStore = 16;

rlimit Limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    limit = {RLIM_INFINITY, RLIM_INFINITY};
  }
  return limit;
}

rlim_t Count(std::int32_t number) {
  return static_cast<rlim_t>(std::max(number, 0));
}

// What a start cannot do without.
rlim_t Needed(const DescriptorUse& use) {
  return kOwn + Count(use.nproc) * (kPerWorker + (use.worker_ports ? 1 : 0));
}

// And what it does better with.
rlim_t Wanted(const DescriptorUse& use) {
  return Needed(use) + Count(use.nproc) * kPerWaitingWorker;
}

}  // namespace

absl::Status EnsureDescriptors(const DescriptorUse& use) {
  rlimit limit = Limit();
  if (limit.rlim_cur >= Wanted(use)) {
    return absl::OkStatus();
  }
  if (limit.rlim_max >= Needed(use)) {
    limit.rlim_cur = std::min(Wanted(use), limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return absl::OkStatus();
  }
  const std::string who =
      use.nproc == 0 ? "ddlaunch needs " : absl::StrCat(use.nproc, " workers need ");
  return absl::ResourceExhaustedError(absl::StrCat(
      who, Needed(use), " open files", use.nproc == 0 ? "" : " in ddlaunch", ", the hard limit is ",
      limit.rlim_max, "; ", kRemedy, use.nproc > 1 ? " or start fewer workers" : ""));
}

void RaiseDescriptorLimit() {
  rlimit limit = Limit();
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::size_t DescriptorsForStore(const DescriptorUse& use) {
  const rlim_t allowed = Limit().rlim_cur;
  const rlim_t rest = allowed - std::min(Wanted(use), allowed);
  return std::max(rest - std::min(Count(use.nodes), rest / kNodesPart), kLeastForStore);
}

std::string DescriptorLimitText() {
  const rlimit limit = Limit();
  return absl::StrCat("open files allowed: ", limit.rlim_cur, " (ulimit -n)",
                      limit.rlim_cur < limit.rlim_max
                          ? absl::StrCat(", at most ", limit.rlim_max, " (ulimit -Hn)")
                          : absl::StrCat("; ", kRemedy));
}

}  // namespace ddl
