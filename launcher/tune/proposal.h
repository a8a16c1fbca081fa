// What tune asks the plan for, once it has chosen a micro-batch. Pure.
#ifndef DDLAUNCH_LAUNCHER_TUNE_PROPOSAL_H_
#define DDLAUNCH_LAUNCHER_TUNE_PROPOSAL_H_

#include <cstdint>

#include "agent/plan/plan.h"
#include "launcher/tune/tune_config.h"

namespace ddl::tune {

// The floor asked for, --min-micro-batch-size, is above `choice`: the proposal goes
// without it.
[[nodiscard]] bool IsBelowFloor(const TuneConfig& config, std::int64_t choice);

// The request whose micro-batch is the choice: with a global batch given, the choice
// is the cap; else a step is one micro-batch of each rank. Without a policy it is
// kNearest, as for ddlaunch plan: a table of refusals helps nobody.
[[nodiscard]] plan::Request ProposedRequest(const TuneConfig& config, std::int64_t choice);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_PROPOSAL_H_
