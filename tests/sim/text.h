// Names in the simulated world: of nodes, and of events in a trace.
#ifndef DDLAUNCH_TESTS_SIM_TEXT_H_
#define DDLAUNCH_TESTS_SIM_TEXT_H_

#include <string>

#include "agent/core/types.h"
#include "tests/sim/network.h"

namespace ddl::sim {

// A node's incarnation is "n" and its number.
[[nodiscard]] NodeId NodeOfIncarnation(const std::string& incarnation);
[[nodiscard]] inline NodeId NodeOfRef(const core::AgentRef& ref) {
  return NodeOfIncarnation(ref.incarnation);
}

// "n3 -> hello nproc=2"
[[nodiscard]] std::string Describe(const core::Event& event);

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_TEXT_H_
