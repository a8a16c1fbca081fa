// Evaluation over all ranks: every sample counts once, whatever the world.
//
// A sampler that pads counts some samples twice, and a mean of the ranks' means
// weighs small shares too much. Here the shares are uneven and nothing is padded;
// sums and counts are reduced, and divided last.
//
//   auto sampler = ddl::EvaluationSampler::Create(test.size(), rank, world, 64);
//   ddl::EvaluationTotals totals;
//   while (auto batch = sampler->Next()) {
//     for (std::int64_t i = batch->begin; i < batch->end; ++i) totals.Add(Loss(i));
//   }
//   auto result = totals.Reduce(backend);  // on every rank
//
// Thread safety: none; one thread owns each.
#ifndef DDL_EVALUATION_H_
#define DDL_EVALUATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ddl/backend.h"
#include "ddl/sampler.h"

namespace ddl {

// This rank's samples, in their order, in batches: ShareOf(num_samples, rank).
class EvaluationSampler {
 public:
  // Fewer samples than ranks is allowed: some ranks then have no batch.
  // Errors: INVALID_ARGUMENT, no samples, a batch size below 1, or a rank that is
  // not in the world.
  static absl::StatusOr<EvaluationSampler> Create(std::int64_t num_samples, int rank,
                                                  int world_size, std::int64_t batch_size);

  // The next batch, never empty; nothing at the end.
  std::optional<IndexRange> Next();
  // Begins again.
  void Restart() { next_ = share_.begin; }

  [[nodiscard]] IndexRange share() const { return share_; }

 private:
  EvaluationSampler(IndexRange share, std::int64_t batch_size)
      : share_(share), batch_size_(batch_size), next_(share.begin) {}

  IndexRange share_;
  std::int64_t batch_size_;
  std::int64_t next_;
};

// Over all ranks.
struct EvaluationResult {
  std::int64_t count = 0;
  std::vector<double> means;  // one for each value of a sample
  [[nodiscard]] double mean() const { return means.front(); }
};

class EvaluationTotals {
 public:
  // `values`: how many numbers each sample gives, e.g. loss and 1 where the answer
  // was right. REQUIRES: values >= 1.
  explicit EvaluationTotals(std::size_t values = 1);

  // One sample's only value.
  void Add(double value);
  // Sums over `count` samples, one for each value. REQUIRES: as many as `values`,
  // and count >= 0.
  void Add(std::span<const double> sums, std::int64_t count);

  // Sums and counts over all ranks. Every rank must call it, also one without
  // samples; the totals stay as they were.
  // Errors: FAILED_PRECONDITION, no rank had a sample; else the backend's.
  [[nodiscard]] absl::StatusOr<EvaluationResult> Reduce(Backend& backend) const;

 private:
  std::vector<double> sums_;
  std::int64_t count_ = 0;
};

}  // namespace ddl

#endif  // DDL_EVALUATION_H_
