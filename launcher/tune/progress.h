// How far a trial is, in one line of the terminal that is written again and again, and
// is gone when the trial has ended. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_TUNE_PROGRESS_H_
#define DDLAUNCH_LAUNCHER_TUNE_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddl::tune {

struct TrialProgress {
  std::int64_t micro_batch_size = 0;
  std::int64_t steps = 0;
  std::int64_t steps_wanted = 0;
  double samples_per_s = 0;    // 0: not known yet
  double seconds = 0;          // since the start of the trial
  double seconds_allowed = 0;  // until the first step
};

// "micro-batch 64: 12 of 23 steps, 8123 samples/s", "micro-batch 64: no step yet, 12 s of
// 300". Pure.
std::string ProgressText(const TrialProgress& progress);

class ProgressLine {
 public:
  // Not `wanted`: nothing is ever shown.
  explicit ProgressLine(bool wanted);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ProgressLine(ProgressLine&&) = delete;
  ProgressLine& operator=(ProgressLine&&) = delete;

  // Only where stderr is a terminal, and not from the background. Cut at its width.
  void Show(std::string_view text);
  // Leaves an empty line, at its beginning. REQUIRED before anything else is printed.
  void Clear();

 private:
  bool shows_;
  std::size_t width_ = 0;  // of what is there now
};

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_PROGRESS_H_
