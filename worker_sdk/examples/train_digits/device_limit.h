// A device whose memory holds a given number of samples, to see what happens when
// it runs out: --oom-above, --oom-rank, --oom-at-step.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_DEVICE_LIMIT_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_DEVICE_LIMIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "worker_sdk/examples/train_digits/options.h"

namespace ddl::digits {

// How many of a micro-batch's samples fit into this rank's memory in this step.
std::size_t SamplesThatFit(const Options& options, int rank, std::int64_t step,
                           std::size_t samples);

// What the device says of a micro-batch of which only `fit` samples fit.
absl::Status DoesNotFit(std::size_t samples, std::size_t fit);

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_DEVICE_LIMIT_H_
