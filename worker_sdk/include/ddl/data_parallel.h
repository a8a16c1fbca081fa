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
// RunStep does all of the first three lines itself and, when it was created with
// the Context, survives running out of memory: all ranks agree on half the micro-
// batch, and do the step again with the same samples. Global batch and rate stay.
//
//   absl::StatusOr<ddl::StepResult> result =
//       parallel->RunStep(share, [&](std::span<const std::int64_t> samples) { ... });
//
// Gradients travel in flat buckets, the last parameter first (the order in
// which a backward pass completes them).
// It can be moved, not copied: two of them would say for one rank how far it is.
// Thread safety: none; one thread owns it, and it uses the backend.
#ifndef DDL_DATA_PARALLEL_H_
#define DDL_DATA_PARALLEL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/advice.h"
#include "ddl/backend.h"
#include "ddl/context.h"
#include "ddl/sampler.h"

namespace ddl {

namespace internal {
class PlanWatch;
class StepAdvice;
class StepLog;
struct PlanRevision;
}  // namespace internal

// One parameter array and its gradient, of equal length, in host memory: a program
// whose gradients are on a device copies them here and back. Not owned.
struct Parameter {
  std::string name;
  std::span<float> value;
  std::span<float> gradient;
};

struct DataParallelOptions {
  // The largest flat bucket; a larger parameter is a bucket of its own. 25 MiB
  // is PyTorch DDP's default.
  std::size_t bucket_bytes = std::size_t{25} << 20U;
  // The most memory that the device has used, in bytes, 0 where it is not known: for
  // the step log that `ddlaunch tune` reads, and for advice on accumulation. None: the
  // log has what this process has had resident, and there is no such advice.
  std::function<std::int64_t()> peak_memory_bytes;
  // Called before RunStep computes a step again, with the gradients at zero, on
  // each rank that had begun it: puts back what computing has changed besides the
  // gradients, such as the statistics of BatchNorm, and gives memory back to the
  // device. The ranks connect anew after it, which takes device memory too. None:
  // there is nothing to put back.
  std::function<void()> before_retry;
  // How long ranks wait for each other before a step is done again: one may still
  // be saving a checkpoint.
  std::chrono::milliseconds agreement_timeout = std::chrono::minutes(5);
  // What rank 0 says on stderr of how training goes: see advice.h.
  AdviceOptions advice;
};

// What computing a micro-batch gives: the sum of its samples' losses, and their
// number (or that of tokens). Weight 0, as of a micro-batch whose tokens are all
// masked: it has no say, and RunStep leaves it out when its gradient is not finite
// (0/0), where need be by computing the other micro-batches again, after
// before_retry.
struct MicroResult {
  double loss_sum = 0;
  double weight = 0;
};

// Computes the samples (indices into the data set, never none) in one micro-step,
// and adds the sum of their gradients to the gradient arrays. It returns
// OutOfMemory (out_of_memory.h) or throws when they do not fit.
using MicroStep = std::function<absl::StatusOr<MicroResult>(std::span<const std::int64_t>)>;

// One optimizer step over all ranks.
struct StepResult {
  double mean_loss = 0;  // loss sum / weight; 0 when weight is 0
  double weight = 0;     // samples (or tokens) of the step
};

class DataParallel {
 public:
  ~DataParallel() = default;
  DataParallel(DataParallel&&) = default;
  DataParallel& operator=(DataParallel&&) = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Checks that every rank has the same parameters (names, lengths) and bucket
  // size, and sets the values to rank 0's. `backend` and the arrays must outlive it. Every
  // rank must call it.
  // Errors: INVALID_ARGUMENT, a parameter whose gradient has another length;
  // FAILED_PRECONDITION, the ranks' parameters differ (told to all of them);
  // else the backend's.
  static absl::StatusOr<DataParallel> Create(Backend* backend, std::vector<Parameter> parameters,
                                             const DataParallelOptions& options = {});

  // The same, for a RunStep that survives running out of memory by the rules of
  // `plan`, which is the context's (AgreePlan). At most one at a time in a
  // process; it has a thread, which waits for the agent's word. Every rank must
  // create it so.
  // Errors: as above; FAILED_PRECONDITION, there is another one.
  static absl::StatusOr<DataParallel> Create(const Context& context, const Plan& plan,
                                             Backend* backend, std::vector<Parameter> parameters,
                                             const DataParallelOptions& options = {});

  // One optimizer step, up to the mean gradient: zeroes the gradients, calls
  // `compute` for each micro-batch of the share's samples, and sums over all
  // ranks. Every rank must call it, in the same steps, also with an empty share.
  // A loader of the program's own sets StepShare::samples. They are split by the
  // plan's micro-batch; without the context they are as micro_batches has them, or
  // one micro-batch where it has none.
  //
  // When `compute` runs out of memory on any rank, all ranks do the step again
  // with a smaller micro-batch; what was computed before does not count. Errors
  // that are none of out of memory, and exceptions, are handed to the caller.
  // Errors: RESOURCE_EXHAUSTED (IsOutOfMemory), and the step cannot be done again:
  // the micro-batch cannot be made smaller, memory ran out in a collective, which
  // others may have finished, or the DataParallel was created without the context;
  // the program should exit, and its launcher knows why. Those of `compute` and of the
  // backend. DEADLINE_EXCEEDED, ABORTED: a rank did not come to do the step again.
  // INVALID_ARGUMENT, created with the context and given micro_batches alone.
  // A rank that gets an error of another kind than out of memory, or an exception, has
  // left the step: the others wait for it in their collective until its process exits,
  // or the backend's timeout has passed. So it should exit.
  absl::StatusOr<StepResult> RunStep(const StepShare& share, const MicroStep& compute);

  // Samples of a micro-step, as RunStep splits them now; 0: as the share says.
  [[nodiscard]] std::int64_t micro_batch_size() const;

  // The number of the next step, for messages: after a resume, say. They count
  // from 1, in RunStep and FinishStep. Every rank must give the same. REQUIRES:
  // step >= 0.
  void set_next_step(std::int64_t step) { next_step_ = step; }

  // Adds a micro-batch to the step's loss and weight. Not called for an empty
  // share. A weight of zero is allowed: its loss has no say, but whatever is in the
  // gradient arrays has, so it must have added nothing to them.
  // Errors: INVALID_ARGUMENT, a negative or non-finite weight.
  absl::Status AddMicroBatch(double loss_sum, double weight);

  // Ends the optimizer step, on every rank, also on those without samples.
  absl::StatusOr<StepResult> FinishStep();

  // For ranks with unequal numbers of batches, from loaders of their own: whether
  // any rank has one more. Every rank must call it before each step, and make the
  // step while it returns true, with an empty share when it has no more itself:
  //
  //   for (;;) {
  //     std::optional<ddl::StepShare> share = loader.Next();
  //     absl::StatusOr<bool> more = parallel->AnyHasMore(share.has_value());
  //     if (!more.ok()) return more.status();
  //     if (!*more) break;
  //     absl::StatusOr<ddl::StepResult> result =
  //         parallel->RunStep(share.value_or(ddl::StepShare()), compute);
  //     if (!result.ok()) return result.status();
  //     update the parameters with the gradients;
  //   }
  //
  // So nobody waits for a rank that has left. The mean stays that of all samples.
  // The ranks that ran out first are named once, on stderr. DistributedSampler needs
  // none of this: its ranks always make the same steps.
  absl::StatusOr<bool> AnyHasMore(bool have);

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
  // RunStep's parts.
  struct Attempt;
  Attempt Try(const StepShare& share, const MicroStep& compute);
  absl::Status ComputeShare(const std::vector<std::span<const std::int64_t>>& micro_batches,
                            const MicroStep& compute, Attempt& attempt);
  bool LeaveOut();
  void Forget();
  [[nodiscard]] bool OthersWait() const;
  [[nodiscard]] bool GradientsAreFinite() const;
  absl::Status PrepareRetry(const Attempt& attempt);
  absl::Status ReportOurs(const Attempt& attempt);
  void SayRetry(const absl::Status& error, const internal::PlanRevision& revision);
  absl::Status GiveUp(const absl::Status& error, const absl::Status& refused) const;
  [[nodiscard]] absl::StatusOr<std::vector<std::span<const std::int64_t>>> Split(
      const StepShare& share) const;

  Backend* backend_;
  std::vector<Parameter> parameters_;
  std::size_t bucket_bytes_;
  std::vector<Bucket> buckets_;
  std::vector<float> flat_;  // the bucket on its way
  double loss_sum_ = 0;      // of this rank, this step
  double weight_ = 0;
  std::int64_t next_step_ = 1;
  bool agent_tells_ = false;  // the launcher logs what changes
  bool hints_said_ = false;
  bool left_out_said_ = false;
  std::function<void()> before_retry_;
  std::shared_ptr<internal::PlanWatch> watch_;  // null: created without a context
  bool ranks_are_out_ = false;                  // told which, once
  std::shared_ptr<internal::StepAdvice> advice_;
  std::shared_ptr<internal::StepLog> step_log_;  // null: none is wanted
};

}  // namespace ddl

#endif  // DDL_DATA_PARALLEL_H_
