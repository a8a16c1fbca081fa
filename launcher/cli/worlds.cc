// --world: sizes of the world, as numbers and ranges.
#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

constexpr std::int64_t kLargestWorld =
    std::int64_t{limits::kMaxNodes} * std::int64_t{limits::kMaxWorkersPerNode};
// A line of a table each.
constexpr std::size_t kMostWorlds = 4096;

absl::Status AddWorlds(std::string_view part, std::vector<std::int64_t>& worlds) {
  const std::size_t dots = part.find("..");
  DDL_ASSIGN_OR_RETURN(const std::int64_t first,
                       ParseInteger(part.substr(0, dots), 1, kLargestWorld));
  std::int64_t last = first;
  if (dots != std::string_view::npos) {
    DDL_ASSIGN_OR_RETURN(last, ParseInteger(part.substr(dots + 2), 1, kLargestWorld));
  }
  if (last < first) {
    return absl::InvalidArgumentError(absl::StrCat(first, "..", last, " is backwards"));
  }
  for (std::int64_t world = first; world <= last; ++world) {
    if (std::find(worlds.begin(), worlds.end(), world) == worlds.end()) {
      worlds.push_back(world);
    }
    if (worlds.size() > kMostWorlds) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMostWorlds, " worlds"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::int64_t>> ParseWorlds(std::string_view text) {
  std::vector<std::int64_t> worlds;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (const absl::Status added = AddWorlds(text.substr(begin, end - begin), worlds);
        !added.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("must be world sizes, as 1,2,4 or 1..64: ", std::string(added.message())));
    }
    begin = end + 1;
  }
  return worlds;
}

}  // namespace ddl::cli
