// The training itself: what to copy for a trainer of your own.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_TRAINER_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_TRAINER_H_

#include "absl/status/status.h"
#include "ddl/context.h"
#include "worker_sdk/examples/train_digits/options.h"

namespace ddl::digits {

// From the agreement on a plan to the last line of metrics. Every rank calls it.
absl::Status TrainDigits(const Options& options, const Context& context);

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_TRAINER_H_
