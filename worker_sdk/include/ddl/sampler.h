// DistributedSampler: which samples this rank works on, in each optimizer step.
//
// One permutation of 0 .. num_samples-1 is drawn for each epoch, from the seed
// and the epoch only; every rank draws the same. Optimizer step k of an epoch
// trains on permutation[k x global, (k+1) x global), whatever the world size
// and accumulation: so is the mathematics of a step. Inside a step the samples
// are shared contiguously: rank r gets the r-th part, in as few micro-batches of at
// most micro_batch_size as there can be, which differ by at most one sample.
//
// The last step of an epoch has what is left: see Tail. Every rank makes every
// step, so that collectives match.
//
// The position is one number: how many samples of the epoch the whole job has
// consumed. A run that resumes from it, at any world size, covers exactly the
// rest of the epoch, each sample once.
//
// Permutation: Fisher-Yates (Durstenfeld 1964) over SplitMix64 (Steele, Lea and
// Flood 2014), bounded by rejection, so it is the same on every platform.
// Memory: 8 bytes a sample. Thread safety: none; one thread owns a sampler.
#ifndef DDL_SAMPLER_H_
#define DDL_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ddl/context.h"

namespace ddl {

// A permutation of 0 .. count-1, as described above; identity without samples.
[[nodiscard]] std::vector<std::int64_t> Permutation(std::int64_t count, std::uint64_t seed,
                                                    std::int64_t epoch);

// Half-open: begin <= i < end.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

// The contiguous part of 0 .. count-1 that belongs to `rank`. Parts differ by
// at most one and cover all, each once: for evaluation, where sums and counts
// are reduced and nothing is padded. REQUIRES: 0 <= rank < world_size.
[[nodiscard]] IndexRange ShareOf(std::int64_t count, int rank, int world_size);

// The last step of an epoch, when the global batch does not divide the samples.
enum class Tail : std::uint8_t {
  // What is left. The parts are uneven, and empty on some ranks when fewer samples
  // than ranks are left; nothing is repeated and nothing is dropped.
  kUneven,
  // As many samples again from the head of the epoch's order as make the parts
  // equal, as PyTorch's DistributedSampler does: at most one a rank.
  kPad,
  // Left out: every step has the whole global batch, as with PyTorch's DataLoader
  // with drop_last. For BatchNorm, whose statistics need more than one sample.
  kDrop,
};

struct SamplerOptions {
  // Another order in each epoch; else 0, 1, 2, ... in all of them.
  bool shuffle = true;
  Tail tail = Tail::kUneven;
};

// One optimizer step, as this rank sees it. A program with a loader of its own
// fills in what it knows for DataParallel::RunStep.
struct StepShare {
  std::int64_t step_in_epoch = 0;
  // Samples of this step over all ranks. The gradient's divisor is the sum of the
  // weights, which is this number where the weights are samples.
  std::int64_t global_samples = 0;
  // -1: not known.
  std::int64_t epoch = -1;
  // Samples of the epoch that the whole job had consumed before this step.
  std::int64_t consumed_before = 0;
  // Of the data set; 0: not known.
  std::int64_t epoch_samples = 0;
  // Samples of a whole step, and of the incomplete last one as the tail has it (0:
  // there is none).
  std::int64_t global_batch = 0;
  std::int64_t tail_samples = 0;
  // Every epoch has the same order, as was asked for.
  bool fixed_order = false;
  // This rank's samples; none when its share is empty. The spans, here and
  // below, stay valid until the sampler's next StartEpoch or destruction.
  std::span<const std::int64_t> samples;
  // The same in micro-batches, as the plan has them. A DataParallel that was created
  // with the context takes `samples` and splits them itself, by the micro-batch in
  // force; a loader of the program's own need not set these.
  std::vector<std::span<const std::int64_t>> micro_batches;
};

class DistributedSampler {
 public:
  // Takes the batch sizes from `plan`.
  // Errors: INVALID_ARGUMENT, no samples, a plan without batch sizes, or fewer
  // samples than one step of Tail::kDrop needs. Fewer samples than ranks is
  // allowed, with a warning on stderr from rank 0.
  static absl::StatusOr<DistributedSampler> Create(std::int64_t num_samples, const Plan& plan,
                                                   int rank, std::uint64_t seed,
                                                   const SamplerOptions& options = {});

  // Begins an epoch, or resumes it: `consumed` samples of it are already done
  // by the whole job. Errors: INVALID_ARGUMENT, out of range.
  absl::Status StartEpoch(std::int64_t epoch, std::int64_t consumed = 0);

  // The next optimizer step; nothing at the end of the epoch. Called once more
  // after that, it begins the next epoch, in its own order, as if StartEpoch had
  // been called: a loop over epochs that forgets it does not repeat itself.
  std::optional<StepShare> Next();

  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  // Samples of this epoch handed out so far, over all ranks.
  [[nodiscard]] std::int64_t consumed() const { return consumed_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  // By the whole job since the start of training: the epochs before this one, and
  // consumed(). Before a step it is what LrSchedule::Rate takes.
  [[nodiscard]] std::int64_t samples_done() const { return epoch_ * num_samples_ + consumed_; }
  // Optimizer steps of a whole epoch, the incomplete last one included unless it is
  // dropped.
  [[nodiscard]] std::int64_t steps_per_epoch() const;

 private:
  DistributedSampler(std::int64_t num_samples, const Plan& plan, int rank, std::uint64_t seed,
                     const SamplerOptions& options);
  // The samples of an incomplete step, of `left` samples, as the tail has it.
  [[nodiscard]] std::int64_t TailOf(std::int64_t left) const;

  std::int64_t num_samples_;
  std::int64_t global_batch_size_;
  std::int64_t micro_batch_size_;
  int world_size_;
  int rank_;
  std::uint64_t seed_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t consumed_ = 0;
  bool ended_ = false;               // Next() said so
  std::vector<std::int64_t> order_;  // of epoch_, and kPad's repeated head
};

}  // namespace ddl

#endif  // DDL_SAMPLER_H_
