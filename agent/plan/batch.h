// The identity and the policies: the three numbers of a batch. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_BATCH_H_
#define DDLAUNCH_AGENT_PLAN_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "agent/plan/numbers.h"
#include "agent/plan/plan.h"

namespace ddl::plan {

struct Batch {
  std::int64_t global = 0;
  std::int64_t micro = 0;
  std::int64_t accumulation = 0;
};

// The largest micro-batch that the request allows for memory's sake.
inline std::int64_t CapOf(const Request& request) {
  return request.max_micro_batch_size.value_or(kMaxShare);
}

// The least micro-batch that a share of so many samples should be split into.
inline std::int64_t FloorOf(const Request& request, std::int64_t share) {
  return std::min(request.min_micro_batch_size.value_or(1), share);
}

inline BatchPolicy PolicyOf(const Request& request) {
  return request.batch_policy.value_or(BatchPolicy::kFail);
}

// INVALID_ARGUMENT: a number out of range.
absl::Status CheckBatch(const Request& request);

// The micro-batch is neither above the cap nor below the floor, and these not crossed.
bool CapsAgree(const Request& request);

// The batch for `world` ranks; nothing where there is none. REQUIRES: CheckBatch
// is content, and `world` is in 1..kMaxNumber.
std::optional<Batch> SolveBatch(const Request& request, std::int64_t world);

// The batch as running out of memory taught to split it: see Request.
Batch UnderLesson(const Request& request, const Batch& batch, std::int64_t world);

// The batch that kNearest comes to for `global` samples, micro-batches of up to `cap`
// and the request's floor; nothing where there is none.
std::optional<Batch> NearestBatch(const Request& request, std::int64_t global, std::int64_t cap,
                                  std::int64_t world);

// Why SolveBatch has none, and the nearest numbers of which each alone, put in the
// place of the request's, does. REQUIRES: SolveBatch has none.
std::string WhyNoBatch(const Request& request, std::int64_t world);

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_BATCH_H_
