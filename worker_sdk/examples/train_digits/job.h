// What training needs, made once and handed around.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_JOB_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_JOB_H_

#include <cstdint>

#include "ddl/ddl.h"
#include "worker_sdk/examples/train_digits/audit.h"
#include "worker_sdk/examples/train_digits/digits.h"
#include "worker_sdk/examples/train_digits/metrics.h"
#include "worker_sdk/examples/train_digits/options.h"
#include "worker_sdk/examples/train_digits/perceptron.h"

namespace ddl::digits {

// Owns nothing.
struct Job {
  const Options& options;
  const Context& context;
  const DataSet& data;
  Backend& backend;
  DistributedSampler& sampler;
  const LrSchedule& schedule;
  DataParallel& parallel;
  Perceptron& model;
  Audit& audit;
  std::int64_t step = 0;  // optimizer steps done
};

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_JOB_H_
