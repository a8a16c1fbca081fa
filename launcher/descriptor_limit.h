// The limit of open files (RLIMIT_NOFILE), and who in ddlaunch needs how many.
//
// The soft limit is often 1024, for programs that use select(2), and the hard one
// far above it. ddlaunch takes the hard one once the supervisor is forked, which
// remembers the limit that the workers are to get: the caller's. Thread safe, but
// that the limit is the process's.
#ifndef DDLAUNCH_LAUNCHER_DESCRIPTOR_LIMIT_H_
#define DDLAUNCH_LAUNCHER_DESCRIPTOR_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ddl {

// Who holds descriptors beside what every ddlaunch needs. PyTorch's store gets
// what these leave.
struct DescriptorUse {
  std::int32_t nproc = 0;     // workers of this node
  bool worker_ports = false;  // each with a port that is held for it
  std::int32_t nodes = 0;     // that meet at a coordinator in this process
};

// Raises the soft limit as far as `use` needs, if the hard one lets it.
// RESOURCE_EXHAUSTED: it does not; needed and allowed are named. Only what a start
// cannot do without counts: not the nodes, which may be fewer.
absl::Status EnsureDescriptors(const DescriptorUse& use);

// The soft limit becomes the hard one.
void RaiseDescriptorLimit();

// How many connections the store may have under the soft limit as it is, beside
// `use`. Never 0: where nearly nothing is left, opening them shows what fails.
std::size_t DescriptorsForStore(const DescriptorUse& use);

// "open files allowed: 1024 (ulimit -n); raise ...": the limit as it is, and the
// remedy.
std::string DescriptorLimitText();

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_DESCRIPTOR_LIMIT_H_
