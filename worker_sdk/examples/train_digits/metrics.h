// The metrics file: one JSON object a line, written by rank 0.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_METRICS_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_METRICS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddl::digits {

// One optimizer step; `step` counts from 1 over the whole training.
struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;  // mean over the global batch
  double lr = 0;
  std::int64_t samples = 0;  // of this step, all ranks
};

struct FinalMetrics {
  double accuracy = 0;  // 0 .. 1, on the test images
  std::int64_t steps = 0;
  int world = 0;
  int restart_count = 0;
  double weights_l2 = 0;  // the Euclidean norm of all weights
};

// Not thread safe.
class MetricsFile {
 public:
  // Keeps the lines of steps up to `resumed_step` and cuts off the rest: steps
  // that were done after the checkpoint will be done, and written, again.
  // An empty path writes nowhere.
  static absl::StatusOr<MetricsFile> Open(const std::string& path, std::int64_t resumed_step);

  // Each line is handed to the system at once, so a kill loses none.
  absl::Status Write(const StepMetrics& metrics);
  absl::Status Write(const FinalMetrics& metrics);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  absl::Status WriteLine(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;  // null: nowhere
};

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_METRICS_H_
