// Who is alive beside whom.
#include "tests/sim/census.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddl::sim {
namespace {

bool SameRound(const Census::Group& left, const Census::Group& right) {
  return left.job_life == right.job_life && left.round == right.round;
}

bool ShareARank(const Census::Group& left, const Census::Group& right) {
  return left.first_rank < right.first_rank + right.nproc &&
         right.first_rank < left.first_rank + left.nproc;
}

std::string Describe(const Census::Group& group) {
  return absl::StrCat("n", group.node, " (round ", group.round, " of job life ", group.job_life,
                      ")");
}

}  // namespace

bool Census::IsExcused(const Group& alive, const Group& starting) {
  if (alive.unkillable) {
    ++excused_.unkillable;
    return true;
  }
  if (!options_.broken_stream_proves_nothing && (alive.unaware || starting.unaware)) {
    ++excused_.unaware;
    return true;
  }
  const Group& older = alive.coordinator_life < starting.coordinator_life ? alive : starting;
  const Group& newer = &older == &alive ? starting : alive;
  if (options_.hold_after_start == Duration::zero() && newer.unwarned &&
      older.coordinator_life < newer.coordinator_life) {
    ++excused_.unwarned;
    return true;
  }
  return false;
}

std::string Census::Begin(const Group& group) {
  std::string violation;
  for (const Group& other : alive_) {
    if (other.job != group.job) {
      continue;
    }
    const bool harmless =
        other.node != group.node && SameRound(other, group) && !ShareARank(other, group);
    if (harmless) {
      continue;
    }
    if (!IsExcused(other, group)) {
      violation = absl::StrCat("workers of ", Describe(group), " start while those of ",
                               Describe(other), " are alive");
    }
  }
  alive_.push_back(group);
  return violation;
}

void Census::End(NodeId node) {
  const auto it = std::find_if(alive_.begin(), alive_.end(),
                               [node](const Group& group) { return group.node == node; });
  if (it != alive_.end()) {
    alive_.erase(it);
  }
}

void Census::MarkUnkillable(NodeId node) {
  for (Group& group : alive_) {
    if (group.node == node) {
      group.unkillable = true;
    }
  }
}

}  // namespace ddl::sim
