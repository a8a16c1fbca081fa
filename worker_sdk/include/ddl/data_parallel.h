// DataParallel: keeps replicas of a model equal by summing their gradients.
//
// The program owns parameters and gradients as plain arrays of float. In each
// micro-step it ADDS the sum (not the mean) of the samples' gradients to the
// gradient arrays and reports the loss sum and the weight (the number of
// samples, or of tokens). FinishStep then communicates, once per optimizer
// step, and leaves in the gradient arrays, on every rank,
//
//   sum over all samples of the global batch / sum of their weights
//
// which is the exact mean however unevenly the samples were shared, over ranks
// or micro-steps (an average of averages is not). A rank without samples adds
// zeros. A step whose weights sum to zero has a zero gradient and a zero loss,
// never NaN.
//
//   zero the gradients;
//   for each micro-batch: compute; parallel->AddMicroBatch(loss_sum, samples);
//   absl::StatusOr<ddl::StepResult> result = parallel->FinishStep();
//   update the parameters with the gradients;
//
// Gradients travel in flat buckets, the last parameter first (the order in
// which a backward pass completes them).
// Thread safety: none; one thread owns it, and it uses the backend.
#ifndef DDL_DATA_PARALLEL_H_
#define DDL_DATA_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/backend.h"

namespace ddl {

namespace internal {
class StepLog;
}  // namespace internal

// One parameter array and its gradient, of equal length. Not owned.
struct Parameter {
  std::string name;
  std::span<float> value;
  std::span<float> gradient;
};

struct DataParallelOptions {
  // The largest flat bucket; a larger parameter is a bucket of its own. 25 MiB
  // is PyTorch DDP's default.
  std::size_t bucket_bytes = std::size_t{25} << 20U;
  // The most memory that the device has used, in bytes, for the step log that
  // `ddlaunch tune` reads; none: what this process has had resident.
  std::function<std::int64_t()> peak_memory_bytes;
};

// One optimizer step over all ranks.
struct StepResult {
  double mean_loss = 0;  // loss sum / weight; 0 when weight is 0
  double weight = 0;     // samples (or tokens) of the step
};

class DataParallel {
 public:
  // Checks that every rank has the same parameters (names, lengths) and bucket
  // size, and sets the values to rank 0's. `backend` and the arrays must outlive it. Every
  // rank must call it.
  // Errors: INVALID_ARGUMENT, a parameter whose gradient has another length;
  // FAILED_PRECONDITION, the ranks' parameters differ (told to all of them);
  // else the backend's.
  static absl::StatusOr<DataParallel> Create(Backend* backend, std::vector<Parameter> parameters,
                                             const DataParallelOptions& options = {});

  // Adds a micro-batch to the step's loss and weight. Not called for an empty
  // share; a weight of zero is allowed.
  // Errors: INVALID_ARGUMENT, a negative or non-finite weight.
  absl::Status AddMicroBatch(double loss_sum, double weight);

  // Ends the optimizer step, on every rank, also on those without samples.
  absl::StatusOr<StepResult> FinishStep();

  // Sets the parameters to those of rank `root`, e.g. after rank 0 has loaded
  // a checkpoint.
  absl::Status BroadcastParameters(int root = 0);

  void ZeroGradients();

  [[nodiscard]] std::size_t num_buckets() const { return buckets_.size(); }

 private:
  // Indices of parameters, and their elements in all.
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t elements = 0;
  };

  DataParallel(Backend* backend, std::vector<Parameter> parameters,
               const DataParallelOptions& options);
  absl::Status CheckSameLayout();
  absl::Status ReduceBucket(const Bucket& bucket, double weight);

  Backend* backend_;
  std::vector<Parameter> parameters_;
  std::size_t bucket_bytes_;
  std::vector<Bucket> buckets_;
  std::vector<float> flat_;  // the bucket on its way
  double loss_sum_ = 0;      // of this rank, this step
  double weight_ = 0;
  std::shared_ptr<internal::StepLog> step_log_;  // null: none is wanted
};

}  // namespace ddl

#endif  // DDL_DATA_PARALLEL_H_
