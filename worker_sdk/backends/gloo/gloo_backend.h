// The Gloo backend: collectives on the CPU over TCP, one connection a pair of
// ranks. The ranks find each other through Context's Publish and Fetch.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_BACKEND_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ddl/backend.h"

namespace ddl::internal {

// Connects all ranks; see CreateBackend. The context is not kept.
absl::StatusOr<std::unique_ptr<Backend>> CreateGlooBackend(const Context& context,
                                                           const BackendOptions& options);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_BACKEND_H_
