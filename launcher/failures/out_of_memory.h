// Whether a worker ended for lack of its device's memory, for programs that do not say
// so themselves: by the exit codes that the user named, or by known words among its
// last. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_OUT_OF_MEMORY_H_
#define DDLAUNCH_LAUNCHER_FAILURES_OUT_OF_MEMORY_H_

#include <cstdint>
#include <set>
#include <string_view>

#include "agent/base/device_memory.h"
#include "launcher/failures/failure_hint.h"

namespace ddl {

// What a worker that ran out of device memory, and cannot go on, said of it.
struct MemoryReport {
  DeviceMemory memory;
  std::int64_t micro_batch_size = 0;  // that was too large; 0: not known
};

// The exception at the end of `text` is one; where there is none, the words stand in
// its last few lines. What was said before that, the program has survived.
[[nodiscard]] bool LastSaysOutOfMemory(std::string_view text);

// A death by a signal has the code of a shell, 128 + its number.
[[nodiscard]] bool ExitCodeSaysOutOfMemory(const HowItEnded& how,
                                           const std::set<std::int32_t>& exit_codes);

// Either.
// Of the signals only SIGABRT leaves room for the program's own words: it ends a C++
// program by an exception that nobody caught. What others wrote before, they survived.
[[nodiscard]] bool EndedOutOfMemory(const HowItEnded& how,
                                    const std::set<std::int32_t>& exit_codes);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_OUT_OF_MEMORY_H_
