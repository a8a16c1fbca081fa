// Any bytes as a message of the wire contract: decoded or refused, never worse.
// What is accepted must survive the way back.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "agent/base/check.h"
#include "agent/wire/wire.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace {

void TryAgentMessage(const std::uint8_t* data, int size) {
  ddlaunch::v1::AgentMessage message;
  if (!message.ParseFromArray(data, size)) {
    return;
  }
  const ddl::core::AgentRef agent{"job", "incarnation"};
  if (const auto hello = ddl::wire::HelloFromWire(message); hello.ok()) {
    DDL_CHECK(ddl::wire::HelloFromWire(ddl::wire::ToWire(ddl::core::Event(*hello))).ok());
  }
  if (const auto event = ddl::wire::EventFromWire(agent, std::move(message)); event.ok()) {
    DDL_CHECK(ddl::wire::EventFromWire(agent, ddl::wire::ToWire(*event)).ok());
  }
}

void TryCoordinatorMessage(const std::uint8_t* data, int size) {
  ddlaunch::v1::CoordinatorMessage message;
  if (!message.ParseFromArray(data, size)) {
    return;
  }
  if (const auto got = ddl::wire::MessageFromWire(std::move(message)); got.ok()) {
    DDL_CHECK(ddl::wire::MessageFromWire(ddl::wire::ToWire(*got)).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TryAgentMessage(data, static_cast<int>(size));
  TryCoordinatorMessage(data, static_cast<int>(size));
  return 0;
}
