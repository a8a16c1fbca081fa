// JSON that a worker wrote, which may be anything. The library copies, compares
// and writes values by recursion, a call for each level of nesting: text that is
// nested deeper than any of ours is refused before it is parsed. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_BOUNDED_JSON_H_
#define DDLAUNCH_LAUNCHER_FAILURES_BOUNDED_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ddl {

inline constexpr std::size_t kMaxJsonNesting = 32;

// A discarded value (is_discarded()) for what is no JSON, or nested deeper.
[[nodiscard]] nlohmann::json ParseBoundedJson(std::string_view text);

// The value at `key`; null: there is none, or `value` is null or no object.
[[nodiscard]] const nlohmann::json* MemberOf(const nlohmann::json* value, const char* key);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_BOUNDED_JSON_H_
