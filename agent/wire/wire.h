// Between the wire contract (proto/ddlaunch/v1) and the core's plain values.
//
// What comes from a peer is checked here, once: every text and number is within
// agent/base/limits.h, or the conversion fails with INVALID_ARGUMENT that names
// the field, its size and the bound. Pure functions; thread safe.
#ifndef DDLAUNCH_AGENT_WIRE_WIRE_H_
#define DDLAUNCH_AGENT_WIRE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/core/types.h"
#include "agent/plan_wire/plan_wire.h"

namespace ddlaunch::v1 {
class AgentMessage;
class CoordinatorMessage;
}  // namespace ddlaunch::v1

namespace ddl::wire {

// The version of the contract this code speaks (Hello.protocol_version).
inline constexpr unsigned kProtocolVersion = 1;

// Coordinator's side in. `agent` names the stream's owner; a Hello names itself
// and is converted by HelloFromWire.
absl::StatusOr<core::Event> EventFromWire(const core::AgentRef& agent,
                                          ddlaunch::v1::AgentMessage message);
absl::StatusOr<core::AgentConnected> HelloFromWire(const ddlaunch::v1::AgentMessage& message);
// Coordinator's side out.
ddlaunch::v1::CoordinatorMessage ToWire(const core::Message& message);

// Agent's side out; only events that an agent can send (no timers, no
// AgentDisconnected, no StoreDone).
ddlaunch::v1::AgentMessage ToWire(const core::Event& event);
// Agent's side in.
absl::StatusOr<core::Message> MessageFromWire(ddlaunch::v1::CoordinatorMessage message);

// INVALID_ARGUMENT when `text` is longer than `limit_bytes`.
absl::Status CheckSize(const char* field, const std::string& text, std::size_t limit_bytes);
// INVALID_ARGUMENT when it is negative or longer than a year.
absl::StatusOr<Duration> TimeoutFromWire(const char* field, std::int64_t ms);

}  // namespace ddl::wire

#endif  // DDLAUNCH_AGENT_WIRE_WIRE_H_
