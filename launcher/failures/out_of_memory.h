// Whether a worker ended for lack of its device's memory, for programs that do not say
// so themselves: by the exit codes that the user named, or by known words among its
// last. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_OUT_OF_MEMORY_H_
#define DDLAUNCH_LAUNCHER_FAILURES_OUT_OF_MEMORY_H_

#include <cstdint>
#include <set>

#include "launcher/failures/failure_hint.h"

namespace ddl {

// Of the signals only SIGABRT leaves room for the program's own words: it ends a C++
// program by an exception that nobody caught. What others wrote before, they survived.
[[nodiscard]] bool EndedOutOfMemory(const HowItEnded& how,
                                    const std::set<std::int32_t>& exit_codes);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_OUT_OF_MEMORY_H_
