// WorkerFailure to and from the wire: both directions of a session carry it.
// Needs the generated message, so only .cc files of agent/wire include this.
#ifndef DDLAUNCH_AGENT_WIRE_WORKER_FAILURE_WIRE_H_
#define DDLAUNCH_AGENT_WIRE_WORKER_FAILURE_WIRE_H_

#include "absl/status/statusor.h"
#include "agent/core/types.h"

namespace ddlaunch::v1 {
class WorkerFailure;
}  // namespace ddlaunch::v1

namespace ddl::wire {

ddlaunch::v1::WorkerFailure FailureToWire(const core::WorkerFailure& failure);
absl::StatusOr<core::WorkerFailure> FailureFromWire(const ddlaunch::v1::WorkerFailure& failure);

}  // namespace ddl::wire

#endif  // DDLAUNCH_AGENT_WIRE_WORKER_FAILURE_WIRE_H_
