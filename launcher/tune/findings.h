// Findings: all that tune measured and decided, for its reports. A plain value.
#ifndef DDLAUNCH_LAUNCHER_TUNE_FINDINGS_H_
#define DDLAUNCH_LAUNCHER_TUNE_FINDINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/tune/trial.h"

namespace ddl::tune {

struct Findings {
  std::vector<TrialResult> trials;  // in the order of the search
  std::optional<std::int64_t> choice;
  double best_samples_per_s = 0;
  std::string device;             // whose memory: "this host"
  std::int64_t device_bytes = 0;  // how much; 0: not known
  // Of the checks at the end.
  std::optional<TrialResult> half_micro;  // the same batch in two micro-steps
  std::optional<double> loss_difference;
  std::optional<TrialResult> scaled;
  std::optional<double> scaling;  // throughput of all workers as times that of one
  bool interrupted = false;

  // The trial of the choice, of several the best; null: there is none.
  [[nodiscard]] const TrialResult* Chosen() const {
    const TrialResult* chosen = nullptr;
    for (const TrialResult& trial : trials) {
      if (choice.has_value() && trial.request.micro_batch_size == *choice &&
          (chosen == nullptr || trial.measured.samples_per_s > chosen->measured.samples_per_s)) {
        chosen = &trial;
      }
    }
    return chosen;
  }
};

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_FINDINGS_H_
