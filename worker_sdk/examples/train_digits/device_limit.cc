// The scripted limit.
#include "worker_sdk/examples/train_digits/device_limit.h"

#include <algorithm>
#include <string>

#include "ddl/out_of_memory.h"
#include "worker_sdk/examples/train_digits/digits.h"

namespace ddl::digits {

std::size_t SamplesThatFit(const Options& options, int rank, std::int64_t step,
                           std::size_t samples) {
  const bool limited = options.oom_above >= 0 &&
                       (options.oom_rank < 0 || options.oom_rank == rank) &&
                       (options.oom_at_step <= 0 || options.oom_at_step == step);
  return limited ? std::min(samples, static_cast<std::size_t>(options.oom_above)) : samples;
}

absl::Status DoesNotFit(std::size_t samples, std::size_t fit) {
  constexpr auto kSampleBytes = static_cast<std::int64_t>(sizeof(Image));
  MemoryUse use;
  use.asked_bytes = kSampleBytes * static_cast<std::int64_t>(samples - fit);
  use.in_use_bytes = kSampleBytes * static_cast<std::int64_t>(fit);
  use.reserved_bytes = use.in_use_bytes;
  use.total_bytes = use.in_use_bytes;
  return OutOfMemory(use, "only " + std::to_string(fit) + " of " + std::to_string(samples) +
                              " samples fit (--oom-above)");
}

}  // namespace ddl::digits
