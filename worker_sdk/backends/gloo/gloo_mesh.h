// Connecting all ranks with one another over Gloo, also where strangers connect too.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_MESH_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_MESH_H_

#include <gloo/rendezvous/context.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// What it takes to connect, at first and again.
struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::string address;  // this node's own
  std::shared_ptr<Gateway> gateway;
  std::chrono::milliseconds timeout{};  // until all have come, and of later operations
};
using Mesh = std::shared_ptr<gloo::rendezvous::Context>;

// Connects all ranks, which meet under keys that begin with `prefix` and are used
// by no other call of the round.
//
// Gloo takes whoever connects first for the peer it waits for. That may be a port
// scanner, or a client whose server had the port before; the peer is then turned
// away. So the ranks try every connection with a message and agree on the outcome:
// either all are connected or all try again, a few times, on new ports.
//
// Errors: DEADLINE_EXCEEDED names a rank that did not come; UNAVAILABLE says which
// rank could not connect, and why.
absl::StatusOr<Mesh> ConnectMesh(const MeshOptions& options, const std::string& prefix);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_MESH_H_
