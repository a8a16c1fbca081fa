// train_bin's command line.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_OPTIONS_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddl::digits {

struct Options {
  std::int64_t epochs = 20;
  std::string data;                   // empty: the file that comes with the program
  std::string checkpoint_dir;         // empty: no checkpoints
  std::int64_t checkpoint_every = 0;  // optimizer steps; 0: at each epoch's end
  std::int64_t seed = 1;
  std::int64_t hidden = 128;
  std::string metrics_out;
  std::string weights_out;
  std::int64_t step_delay_ms = 0;
  std::string audit_dir;         // empty: no audit
  std::int64_t oom_above = -1;   // samples that fit a device; -1: any number
  std::int64_t oom_rank = -1;    // the only rank it holds for; -1: for all
  std::int64_t oom_at_step = 0;  // the only step, from 1; 0: in all
  std::int64_t stop_rank = -1;   // stops itself before step 1; -1: none
  bool help = false;
};

// Both "--name value" and "--name=value".
// INVALID_ARGUMENT: an unknown option (with the nearest known one), a missing
// value, or one out of range.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);

// What --help prints.
std::string HelpText();

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_OPTIONS_H_
