// Membership: who of the nodes at hand takes part in a round, and with which
// node rank. A pure function of the candidates, the same for every order in
// which they are given.
#ifndef DDLAUNCH_AGENT_CORE_MEMBERSHIP_H_
#define DDLAUNCH_AGENT_CORE_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddl::core {

struct Candidate {
  std::int64_t arrival = 0;            // order in which they joined; unique
  std::optional<std::int32_t> pinned;  // --node-rank
  std::optional<std::int32_t> held;    // node rank in the last round
};

// Indexes of the candidates, those first that take part before the others: who
// held a rank, then order of arrival.
[[nodiscard]] std::vector<std::size_t> ByEntitlement(const std::vector<Candidate>& candidates);

// For each node rank 0..seats-1 the index of the candidate that gets it, or
// nothing; who takes part goes by entitlement.
// A pinned rank is honoured; else the rank held; else the lowest hole. A pin
// beyond `seats` (an elastic job that runs with fewer nodes) takes the highest
// free seat. Of two that pin the same rank the later gets no seat.
[[nodiscard]] std::vector<std::optional<std::size_t>> AssignNodeRanks(
    const std::vector<Candidate>& candidates, std::int32_t seats);

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_MEMBERSHIP_H_
