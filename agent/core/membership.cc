// Which node gets which rank.
#include "agent/core/membership.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace ddl::core {
namespace {

using Seats = std::vector<std::optional<std::size_t>>;

bool TakeSeat(Seats& seats, std::optional<std::int32_t> rank, std::size_t candidate) {
  if (!rank.has_value() || *rank < 0 || static_cast<std::size_t>(*rank) >= seats.size()) {
    return false;
  }
  auto& seat = seats[static_cast<std::size_t>(*rank)];
  if (seat.has_value()) {
    return false;
  }
  seat = candidate;
  return true;
}

}  // namespace

std::vector<std::size_t> ByEntitlement(const std::vector<Candidate>& candidates) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&candidates](std::size_t left, std::size_t right) {
    const Candidate& a = candidates[left];
    const Candidate& b = candidates[right];
    if (a.held.has_value() != b.held.has_value()) {
      return a.held.has_value();
    }
    return a.arrival < b.arrival;
  });
  return order;
}

std::vector<std::optional<std::size_t>> AssignNodeRanks(const std::vector<Candidate>& candidates,
                                                        std::int32_t seats) {
  Seats result(static_cast<std::size_t>(std::max(seats, 0)));
  // Who takes part is settled before who sits where: a pinned newcomer may move
  // a member to another rank, but not out of the job.
  std::size_t chosen = 0;
  std::vector<std::size_t> unpinned;
  std::map<std::int32_t, std::size_t, std::greater<>> pinned_beyond;
  for (const std::size_t index : ByEntitlement(candidates)) {
    if (chosen == result.size()) {
      break;
    }
    const std::optional<std::int32_t> pin = candidates[index].pinned;
    if (!pin.has_value()) {
      unpinned.push_back(index);
      ++chosen;
    } else if (*pin >= seats) {
      chosen += pinned_beyond.emplace(*pin, index).second ? 1 : 0;
    } else if (TakeSeat(result, pin, index)) {
      ++chosen;
    }
  }
  auto highest = result.rbegin();
  for (const auto& [pin, index] : pinned_beyond) {
    highest = std::find(highest, result.rend(), std::nullopt);
    *highest = index;
  }
  std::vector<std::size_t> unseated;
  for (const std::size_t index : unpinned) {
    if (!TakeSeat(result, candidates[index].held, index)) {
      unseated.push_back(index);
    }
  }
  auto hole = result.begin();
  for (const std::size_t index : unseated) {
    hole = std::find(hole, result.end(), std::nullopt);
    *hole = index;  // there are as many seats as chosen candidates
  }
  return result;
}

}  // namespace ddl::core
