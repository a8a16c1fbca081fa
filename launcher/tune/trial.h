// One trial: the program under a ddlaunch of its own, which is stopped once enough
// steps were measured. A trial never throws the rest away: however it ends, the
// result says how, and where its output is.
#ifndef DDLAUNCH_LAUNCHER_TUNE_TRIAL_H_
#define DDLAUNCH_LAUNCHER_TUNE_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/signals.h"
#include "launcher/tune/memory_meter.h"
#include "launcher/tune/progress.h"
#include "launcher/tune/search.h"
#include "launcher/tune/step_log.h"
#include "launcher/tune/tune_config.h"

namespace ddl::tune {

struct TrialRequest {
  std::string name;  // of its files
  std::int64_t micro_batch_size = 1;
  std::int64_t grad_accum_steps = 1;
  std::int32_t nproc = 1;
};

struct TrialResult {
  TrialRequest request;
  Outcome outcome = Outcome::kFailed;
  // What was not as it should be, as the end of a sentence: "it exited with code 3".
  std::string why;
  Measurement measured;
  std::int64_t peak_bytes = 0;  // 0: not known
  double memory_part = 0;       // of all there is; 0: not known
  std::vector<Step> steps;
  int exit_code = 0;    // of the trial's ddlaunch, when it ended by itself
  int stop_signal = 0;  // the user stopped tune during the trial; 0: nobody did
  std::string output;   // the file with what it printed
};

class TrialRunner {
 public:
  // All must outlive it. REQUIRES: this process has one thread.
  TrialRunner(const TuneConfig& config, const MemoryMeter& memory, SignalSet& signals,
              ProgressLine& progress)
      : config_(config), memory_(memory), signals_(signals), progress_(progress) {}

  // Errors: INTERNAL, it cannot even be started, or the disk is full.
  absl::StatusOr<TrialResult> Run(const TrialRequest& request);

 private:
  const TuneConfig& config_;
  const MemoryMeter& memory_;
  SignalSet& signals_;
  ProgressLine& progress_;
};

// The last lines of a trial's output, indented; for messages.
std::string LastLines(const std::string& path);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_TRIAL_H_
