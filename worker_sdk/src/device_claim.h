// One device for each rank: NCCL's collectives hang or fail with words of their
// own when two ranks of a node use the same one.
#ifndef DDLAUNCH_WORKER_SDK_SRC_DEVICE_CLAIM_H_
#define DDLAUNCH_WORKER_SDK_SRC_DEVICE_CLAIM_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "ddl/context.h"

namespace ddl::internal {

// `device` names this rank's device the same way on every rank of the node (bus
// address and UUID). Every rank of the node must call it, with a `prefix` of keys that
// nothing else in the round uses; a node of one rank need not. Asks once a rank and
// once for the node's answer, however many ranks there are.
// Errors: FAILED_PRECONDITION, two ranks of this node have the same one, and both
// are named, on every rank of the node; else Publish's and Fetch's.
absl::Status ClaimDevice(const Context& context, const std::string& prefix,
                         const std::string& device, std::chrono::milliseconds timeout);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_DEVICE_CLAIM_H_
