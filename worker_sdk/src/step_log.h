// The step log: one line for each optimizer step, by rank 0, into the file that
// DDL_STEP_LOG names. `ddlaunch tune` reads how fast a trial is and what memory it
// takes from it; any program may write the same lines. Each is
//
//   step,samples,seconds,loss,peak_bytes
//
// in decimal and appended whole: the step, counted from 1; samples (or tokens: the
// weight) of it over all ranks; seconds since the step before (the first one: since
// the log was opened); its mean loss; the most memory so far in bytes, 0 where it is
// not known. A loss may be "nan" or "inf".
// Thread safety: none.
#ifndef DDLAUNCH_WORKER_SDK_SRC_STEP_LOG_H_
#define DDLAUNCH_WORKER_SDK_SRC_STEP_LOG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/base/unique_fd.h"

namespace ddl::internal {

// The most memory that this process had resident, in bytes (VmHWM); 0: not known.
std::int64_t PeakResidentBytes();

class StepLog {
 public:
  // What has been used at most, in bytes.
  using MemoryProbe = std::function<std::int64_t()>;
  using Clock = std::chrono::steady_clock;

  // Null: no log is wanted from this rank, another StepLog of this process writes
  // it, or the file cannot be opened (one line on stderr; training does not depend
  // on it).
  static std::shared_ptr<StepLog> FromEnvironment(int rank, MemoryProbe probe);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  void Add(double samples, double mean_loss);

 private:
  StepLog(std::string path, UniqueFd fd, MemoryProbe probe);
  std::int64_t PeakBytes(Clock::time_point now);

  std::string path_;
  UniqueFd fd_;  // invalid: writing failed once, and no more is tried
  MemoryProbe probe_;
  std::int64_t step_ = 0;
  Clock::time_point last_step_ = Clock::now();
  std::int64_t peak_bytes_ = 0;
  Clock::time_point peak_at_;  // when it was asked for
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_STEP_LOG_H_
