// Which of the known names a mistyped one was meant for: by the words in it, else by
// edit distance. Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_EDIT_DISTANCE_H_
#define DDLAUNCH_AGENT_BASE_EDIT_DISTANCE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

// How many insertions, deletions, substitutions and exchanges of neighbours turn one
// word into the other (Damerau 1964, without edits within an exchanged pair).
std::size_t EditDistance(std::string_view a, std::string_view b);

// The names that `asked` was most likely meant for, in their order; the first of these
// rules that finds any decides:
//   - it has all words of `asked` in the same order ("batch-size": "global-batch-size"),
//     and no other has fewer more. A word may be cut short ("accum", "accumulation");
//     one word alone must begin it ("warmup": "warmup-steps"), for words such as "epochs" or
//     "size" mean little;
//   - it is at the smallest edit distance, of at most a third of the letters; the first
//     of several;
//   - `asked` has all of its words ("world-size": "world"), and fewest more.
// Words are parted by - or _.
std::vector<std::string_view> NearestNames(std::string_view asked,
                                           std::span<const std::string_view> names);

// "; did you mean --a, --b or --c?" with `prefix` before each, of three at most; empty
// where there are no names.
std::string DidYouMean(std::span<const std::string_view> names, std::string_view prefix = "");

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_EDIT_DISTANCE_H_
