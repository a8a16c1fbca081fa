// Levenshtein's distance between two words: how many insertions, deletions and
// substitutions turn one into the other. For "did you mean". Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_EDIT_DISTANCE_H_
#define DDLAUNCH_AGENT_BASE_EDIT_DISTANCE_H_

#include <cstddef>
#include <string_view>

namespace ddl {

std::size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_EDIT_DISTANCE_H_
