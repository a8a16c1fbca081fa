// Saving the state of training, and going on from it.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_CHECKPOINTING_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_CHECKPOINTING_H_

#include "absl/status/status.h"
#include "worker_sdk/examples/train_digits/job.h"

namespace ddl::digits {

// Rank 0 writes; every rank calls it. Nothing without --checkpoint-dir.
absl::Status Save(Job& job);

// Every rank gets the same checkpoint, or none.
// Errors: FAILED_PRECONDITION, it is of a run with other options, or of another model.
absl::Status Resume(Job& job);

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_CHECKPOINTING_H_
