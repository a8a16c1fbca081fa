// The gateway of the node's agent, over gRPC on a Unix socket.
#ifndef DDLAUNCH_WORKER_SDK_SRC_GRPC_GATEWAY_H_
#define DDLAUNCH_WORKER_SDK_SRC_GRPC_GATEWAY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

struct Registration {
  Membership membership;
  std::shared_ptr<Gateway> gateway;
};

// Connects to `address` ("unix:/path") and registers this process as
// `local_rank` in `round`. Errors as of WorkerGateway.Register.
absl::StatusOr<Registration> RegisterAtGateway(const std::string& address, std::int64_t round,
                                               int local_rank, Gateway::Timeout timeout);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_GRPC_GATEWAY_H_
