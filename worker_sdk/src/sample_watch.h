// SampleWatch: follows which samples a rank reads at the start of each epoch, as
// hashes that fit a double, for a comparison between ranks and between epochs.
// Pure; no samples are kept.
#ifndef DDLAUNCH_WORKER_SDK_SRC_SAMPLE_WATCH_H_
#define DDLAUNCH_WORKER_SDK_SRC_SAMPLE_WATCH_H_

#include <cstdint>
#include <span>

namespace ddl::internal {

// One step's data on this rank.
struct SampleFacts {
  std::int64_t epoch = -1;                // -1: not known, and then nothing is watched
  std::int64_t step_in_epoch = 0;         // from 0; steps before a resumption count
  std::int64_t epoch_samples = 0;         // of the data set; 0: not known
  std::int64_t global_batch = 0;          // of a whole step, all ranks; 0: not known
  std::int64_t global_samples = 0;        // of this step, all ranks
  std::int64_t tail_samples = 0;          // of an epoch's incomplete last step; 0: none
  bool fixed_order = false;               // every epoch has the same order, as was asked for
  std::span<const std::int64_t> samples;  // this rank's, of the step
};

class SampleWatch {
 public:
  // The first steps of an epoch that are looked at.
  static constexpr int kSteps = 2;

  // What other ranks should know, this step included.
  struct View {
    std::int64_t epochs = 0;       // begun so far
    bool fresh = false;            // this step is one of the first of an epoch
    std::int64_t epoch = -1;       // as given
    double hash = 0;               // order-free; below 2^52, so exact as a double
    std::int64_t count = 0;        // samples behind the hash
    bool order_unchanged = false;  // the epoch began as the one before, in order
  };
  [[nodiscard]] View Look(const SampleFacts& facts) const;

  // The step is done.
  void Commit(const SampleFacts& facts);

 private:
  // The first steps of an epoch.
  struct Start {
    std::int64_t epoch = -1;
    std::int64_t first_step = 0;   // in the epoch; above 0 where it was resumed
    int steps = 0;                 // that were looked at
    std::uint64_t set_hash = 0;    // order-free
    std::uint64_t order_hash = 0;  // of the first step only
    std::int64_t first_count = 0;  // its samples
    std::int64_t count = 0;        // of all
  };
  [[nodiscard]] bool Begins(const SampleFacts& facts) const;
  [[nodiscard]] Start Next(const SampleFacts& facts) const;

  Start current_;
  Start before_;
  std::int64_t last_step_ = -1;  // in the epoch
  std::int64_t epochs_ = 0;      // begun
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_SAMPLE_WATCH_H_
