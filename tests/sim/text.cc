// Names of nodes and events.
#include "tests/sim/text.h"

#include <charconv>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/golden/render.h"

namespace ddl::sim {
namespace {

using core::AgentConnected;
using core::AgentDisconnected;
using core::AgentHeard;
using core::AgentLeft;
using core::RoundStopped;
using core::StopRequested;
using core::StoreDone;
using core::TimerFired;
using core::WorkerFailed;
using core::WorkersSucceeded;

struct DescribeEvent {
  std::string operator()(const AgentConnected& e) const {
    return absl::StrCat(e.agent.incarnation, " -> hello ", e.agent.job_id, " nproc=", e.nproc,
                        " rank=", e.node_rank.value_or(-1), " last_round=", e.last_round);
  }
  std::string operator()(const AgentHeard& e) const {
    return absl::StrCat(e.agent.incarnation, " -> heard port=", e.master_port);
  }
  std::string operator()(const AgentDisconnected& e) const {
    return absl::StrCat(e.agent.incarnation, " -> disconnected");
  }
  std::string operator()(const AgentLeft& e) const {
    return absl::StrCat(e.agent.incarnation, " -> left");
  }
  std::string operator()(const WorkerFailed& e) const {
    return absl::StrCat(e.agent.incarnation, " -> failed round=", e.round);
  }
  std::string operator()(const WorkersSucceeded& e) const {
    return absl::StrCat(e.agent.incarnation, " -> succeeded round=", e.round);
  }
  std::string operator()(const RoundStopped& e) const {
    return absl::StrCat(e.agent.incarnation, " -> stopped round=", e.round);
  }
  std::string operator()(const StopRequested& e) const {
    return absl::StrCat(e.agent.incarnation, " -> stop ", e.signal,
                        e.node_only ? " this node only" : "");
  }
  std::string operator()(const TimerFired& e) const {
    return absl::StrCat("timer ", core::Render(e.id));
  }
  std::string operator()(const StoreDone& e) const { return absl::StrCat("stored #", e.sequence); }
  template <typename Other>
  std::string operator()(const Other& e) const {
    return absl::StrCat(e.agent.incarnation, " -> word of round ", e.round);
  }
};

}  // namespace

NodeId NodeOfIncarnation(const std::string& incarnation) {
  NodeId node = 0;
  std::from_chars(incarnation.data() + 1, incarnation.data() + incarnation.size(), node);
  return node;
}

std::string Describe(const core::Event& event) {
  return std::visit(DescribeEvent{}, event);
}

}  // namespace ddl::sim
