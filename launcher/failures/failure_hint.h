// What usually is behind a failure, and what to do about it: by the signal or exit
// code, by known words in the worker's output, and by what this node knows of its
// memory. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_FAILURE_HINT_H_
#define DDLAUNCH_LAUNCHER_FAILURES_FAILURE_HINT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/failures/memory_facts.h"

namespace ddl {

struct HowItEnded {
  std::int32_t exit_code = 0;
  std::int32_t term_signal = 0;  // 0: it exited with exit_code
  std::string_view error_text;
};

// Empty: there is nothing to say that would help. `before` is of the round's
// start, `after` of the failure.
[[nodiscard]] std::string FailureHint(const HowItEnded& how, const MemoryFacts& before,
                                      const MemoryFacts& after);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_FAILURE_HINT_H_
