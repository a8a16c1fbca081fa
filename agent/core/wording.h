// Wording: how the core's sentences name durations, hosts, ranks and failures.
// Pure functions; lists are cut at a named length and say how many are left.
#ifndef DDLAUNCH_AGENT_CORE_WORDING_H_
#define DDLAUNCH_AGENT_CORE_WORDING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/core/types.h"

namespace ddl::core {

// A text names at most so many hosts, ranks or jobs.
inline constexpr std::size_t kMaxNamed = 16;

// "5 s", "0.25 s"
[[nodiscard]] std::string InSeconds(Duration duration);

// "1 node", "2 nodes"
[[nodiscard]] std::string Counted(std::int64_t count, const char* noun);

// The first characters of an incarnation: enough to tell two apart.
[[nodiscard]] std::string ShortIncarnation(const std::string& incarnation);

// "a, b, c and 5 more": `names` holds at most kMaxNamed of `total`.
[[nodiscard]] std::string NameSome(const std::vector<std::string>& names, std::size_t total);

// "0, 3-7, 9": `ranks` in ascending order.
[[nodiscard]] std::string NameRanks(const std::vector<std::int32_t>& ranks);

// "rank 3 (local rank 1) on host b exited with code 7"
[[nodiscard]] std::string Describe(const WorkerFailure& failure);

// D1: the worker's own code, or 128 + the signal that ended it; never 0.
[[nodiscard]] std::int32_t ExitCodeOf(const WorkerFailure& failure);

// D2: 128 + the signal that asked for the stop.
[[nodiscard]] std::int32_t ExitCodeOfSignal(std::int32_t signal);

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_WORDING_H_
