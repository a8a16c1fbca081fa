// DDL_CHECK: an assertion that stays on in release builds.
//
// For our own mistakes only: a broken invariant of this code. Never for what a
// user, a peer or the machine may get wrong; those get an absl::Status.
#ifndef DDLAUNCH_AGENT_BASE_CHECK_H_
#define DDLAUNCH_AGENT_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): needs __FILE__ of its caller.
#define DDL_CHECK(condition)                                                                     \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::fprintf(stderr, "ddlaunch: internal error: %s:%d: %s is false\n", __FILE__, __LINE__, \
                   #condition);                                                                  \
      std::abort();                                                                              \
    }                                                                                            \
  } while (false)

#endif  // DDLAUNCH_AGENT_BASE_CHECK_H_
