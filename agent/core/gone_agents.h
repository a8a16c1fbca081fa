// GoneAgents: remembers the incarnations that were lost, left or given up, so
// that one that comes back is told so instead of being taken for new. It
// outlives the jobs: their ids may be in use again by then.
//
// Bounded: the oldest is forgotten first. By then its agent has long stopped
// its workers, for it does so when it cannot reach the coordinator. Not thread
// safe.
#ifndef DDLAUNCH_AGENT_CORE_GONE_AGENTS_H_
#define DDLAUNCH_AGENT_CORE_GONE_AGENTS_H_

#include <cstddef>
#include <deque>
#include <set>

#include "agent/core/types.h"

namespace ddl::core {

class GoneAgents {
 public:
  static constexpr std::size_t kCapacity = 131'072;

  void Add(const AgentRef& agent) {
    if (!agents_.insert(agent).second) {
      return;
    }
    order_.push_back(agent);
    if (order_.size() > kCapacity) {
      agents_.erase(order_.front());
      order_.pop_front();
    }
  }
  [[nodiscard]] bool Contains(const AgentRef& agent) const { return agents_.contains(agent); }

 private:
  std::set<AgentRef> agents_;
  std::deque<AgentRef> order_;  // oldest first; the same agents
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_GONE_AGENTS_H_
