// What a trial's step log says (worker_sdk/src/step_log.h has its form). Pure.
#ifndef DDLAUNCH_LAUNCHER_TUNE_STEP_LOG_H_
#define DDLAUNCH_LAUNCHER_TUNE_STEP_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ddl::tune {

struct Step {
  double samples = 0;           // of all ranks
  double seconds = 0;           // since the step before
  double loss = 0;              // may be NaN
  std::int64_t peak_bytes = 0;  // so far; 0: not known
};

// Reads the whole lines of `text` from `*position` on, and moves it behind them. A
// line that is none of the form is left out and counted in `*strange_lines`.
void ReadSteps(std::string_view text, std::size_t* position, std::vector<Step>* steps,
               std::int64_t* strange_lines);

// The first ones of a trial are slow (memory is asked for, kernels are chosen).
inline constexpr std::size_t kWarmUpSteps = 3;

struct Measurement {
  std::int64_t steps = 0;       // that count
  double seconds = 0;           // that they took
  double samples_per_s = 0;     // the median of the steps'
  double samples_per_step = 0;  // of whole steps: the ninth of ten, by size
  std::int64_t peak_bytes = 0;
};

// Leaves out the first kWarmUpSteps (of a short trial fewer, but one at least), and
// steps that are not whole, as the last of an epoch, which may be every other one. The
// median: a checkpoint or the end of an epoch between two steps does not count.
Measurement Measure(const std::vector<Step>& steps);

// By how much two curves of the loss differ: the mean of the differences at each
// step that both have, as a part of the mean loss. Negative: there is nothing to
// compare; infinite: one of them is not finite where the other is.
double LossDifference(const std::vector<Step>& a, const std::vector<Step>& b);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_STEP_LOG_H_
