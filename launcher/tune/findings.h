// Findings: all that tune measured and decided, for its reports. A plain value.
#ifndef DDLAUNCH_LAUNCHER_TUNE_FINDINGS_H_
#define DDLAUNCH_LAUNCHER_TUNE_FINDINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/tune/search.h"
#include "launcher/tune/trial.h"

namespace ddl::tune {

struct Findings {
  std::vector<TrialResult> trials;  // in the order of the search
  std::optional<Choice> choice;
  double best_samples_per_s = 0;
  std::string device;             // whose memory: "this host"
  std::int64_t device_bytes = 0;  // how much; 0: not known
  // Of the checks at the end.
  std::optional<TrialResult> half_micro;  // the same batch in two micro-steps
  std::optional<double> loss_difference;
  std::optional<TrialResult> scaled;
  std::optional<double> scaling;  // throughput of all workers as times that of one
  bool interrupted = false;

  // The trial of this micro-batch, of a repeated one the better; null: there is none.
  [[nodiscard]] const TrialResult* TrialOf(std::int64_t micro) const {
    const TrialResult* best = nullptr;
    for (const TrialResult& trial : trials) {
      if (trial.request.micro_batch_size == micro &&
          (best == nullptr || trial.measured.samples_per_s > best->measured.samples_per_s)) {
        best = &trial;
      }
    }
    return best;
  }
  [[nodiscard]] const TrialResult* Chosen() const {
    return choice.has_value() ? TrialOf(choice->micro_batch_size) : nullptr;
  }
};

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_FINDINGS_H_
