// The node's first rank reads what the others claim, and publishes the verdict.
#include "worker_sdk/src/device_claim.h"

#include <map>

#include "absl/status/statusor.h"
#include "agent/base/status_macros.h"

namespace ddl::internal {
namespace {

std::string KeyOf(const std::string& prefix, int rank) {
  return prefix + std::to_string(rank);
}

// Empty: each has its own.
absl::StatusOr<std::string> Judge(const Context& context, const std::string& prefix,
                                  const std::string& own, std::chrono::milliseconds timeout) {
  std::map<std::string, int> owners = {{own, 0}};
  for (int local_rank = 1; local_rank < context.local_world_size(); ++local_rank) {
    DDL_ASSIGN_OR_RETURN(const std::string device,
                         context.Fetch(KeyOf(prefix, context.rank() + local_rank), timeout));
    const auto [owner, is_new] = owners.emplace(device, local_rank);
    if (!is_new) {
      const int first = context.rank() + owner->second;
      const int second = context.rank() + local_rank;
      return "ranks " + std::to_string(first) + " and " + std::to_string(second) +
             " (local ranks " + std::to_string(owner->second) + " and " +
             std::to_string(local_rank) + " of node " + std::to_string(context.node_rank()) +
             ") both use device " + device +
             "; NCCL needs one for each rank: start no more workers than there are GPUs "
             "(--nproc-per-node=gpu), and look at CUDA_VISIBLE_DEVICES";
    }
  }
  return std::string();
}

}  // namespace

absl::Status ClaimDevice(const Context& context, const std::string& prefix,
                         const std::string& device, std::chrono::milliseconds timeout) {
  const int first_rank = context.rank() - context.local_rank();
  const std::string verdict_key = KeyOf(prefix + "node/", first_rank);
  std::string verdict;
  if (context.rank() == first_rank) {
    DDL_ASSIGN_OR_RETURN(verdict, Judge(context, prefix, device, timeout));
    DDL_RETURN_IF_ERROR(context.Publish(verdict_key, verdict));
  } else {
    DDL_RETURN_IF_ERROR(context.Publish(KeyOf(prefix, context.rank()), device));
    DDL_ASSIGN_OR_RETURN(verdict, context.Fetch(verdict_key, timeout));
  }
  return verdict.empty() ? absl::OkStatus() : absl::FailedPreconditionError("nccl: " + verdict);
}

}  // namespace ddl::internal
