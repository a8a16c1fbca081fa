// Calls that may never return, with a bound.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_BOUNDED_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_BOUNDED_H_

#include <chrono>
#include <functional>

namespace ddl::internal {

// Runs `work` in a thread of its own and waits for it; false: it has not returned
// within `bound`. It then goes on alone, so it must own, or be given for ever, all
// that it uses.
[[nodiscard]] bool ReturnsWithin(std::chrono::milliseconds bound, std::function<void()> work);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_BOUNDED_H_
