// Admission: whether a Hello makes sense by itself, and whether it agrees with
// the job it wants to join. Pure functions; nothing here depends on who else is
// connected (job.cc checks that).
#ifndef DDLAUNCH_AGENT_CORE_ADMISSION_H_
#define DDLAUNCH_AGENT_CORE_ADMISSION_H_

#include <chrono>
#include <optional>

#include "agent/base/clock.h"
#include "agent/core/types.h"

namespace ddl::core {

// The longest wait an agent may ask for: far from where `now` + wait overflows.
inline constexpr Duration kMaxWait = std::chrono::hours(24 * 365);

// kInvalid, kLimit or kNodeRankOutOfRange, with the value and the bound.
[[nodiscard]] std::optional<Rejected> CheckHello(const AgentConnected& hello);

// kTermsDiffer or kPlanDiffers, with both values and both hosts. `first` is the
// Hello by which the job was made.
[[nodiscard]] std::optional<Rejected> CheckAgrees(const AgentConnected& first,
                                                  const AgentConnected& hello);

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_ADMISSION_H_
