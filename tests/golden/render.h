// Render: the core's effects as one line of text each, for transcripts and for
// the simulator's trace.
#ifndef DDLAUNCH_TESTS_GOLDEN_RENDER_H_
#define DDLAUNCH_TESTS_GOLDEN_RENDER_H_

#include <string>

#include "agent/core/types.h"

namespace ddl::core {

// "a <- round_start round=1 node_rank=0 ..."; times count from the epoch.
[[nodiscard]] std::string Render(const Effect& effect);
// "heartbeat a"
[[nodiscard]] std::string Render(const TimerId& timer);
// "1.5s"
[[nodiscard]] std::string Render(Duration duration);

}  // namespace ddl::core

#endif  // DDLAUNCH_TESTS_GOLDEN_RENDER_H_
