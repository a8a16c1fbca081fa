// Lines, CSV and YAML: see report.h. The picture is in picture.cc.
#include "launcher/tune/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "agent/base/check.h"
#include "agent/base/size_text.h"
#include "launcher/tune/proposal.h"

namespace ddl::tune {
namespace {

// "8123", "81.2", "0.812".
std::string Rounded(double value) {
  constexpr double kWhole = 1000;
  constexpr std::size_t kLongest = 64;
  std::array<char, kLongest> text{};
  std::snprintf(text.data(), text.size(), std::abs(value) >= kWhole ? "%.0f" : "%.3g", value);
  return text.data();
}

// "81 %", "8.1 %", "0.08 %".
std::string Percent(double part) {
  constexpr double kPercent = 100;
  constexpr double kTen = 10;
  constexpr std::size_t kLongest = 64;
  const double percent = part * kPercent;
  const char* const form = percent >= kTen ? "%.0f %%" : (percent >= 1 ? "%.1f %%" : "%.2f %%");
  std::array<char, kLongest> text{};
  std::snprintf(text.data(), text.size(), form, percent);
  return text.data();
}

// A value that YAML reads back as the same text.
std::string YamlScalar(const std::string& text) {
  constexpr std::string_view kPlain =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-+_";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos && text.front() != '-') {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? "''" : std::string(1, c);
  }
  return quoted + "'";
}

// As the table of flags has it; of the proposal's it is the only one that can be in
// the way.
constexpr char kFloorFlag[] = "min-micro-batch-size";

std::string ProgramText(const TuneConfig& config) {
  std::string text;
  for (const std::string& word : config.program) {
    absl::StrAppend(&text, text.empty() ? "" : " ", word);
  }
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

}  // namespace

const char* ToString(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFits:
      return "fits";
    case Outcome::kOutOfMemory:
      return "out of memory";
    case Outcome::kTooMuchMemory:
      return "too much memory";
    case Outcome::kDataEnds:
      return "data ends";
    case Outcome::kTooSlow:
      return "too slow";
    case Outcome::kFailed:
      return "failed";
  }
  return "";
}

std::string TrialLine(const TrialResult& trial) {
  std::string text = absl::StrCat("micro-batch ", trial.request.micro_batch_size, ": ");
  if (trial.measured.steps > 0) {
    absl::StrAppend(&text, Rounded(trial.measured.samples_per_s), " samples/s");
    if (trial.peak_bytes > 0) {
      absl::StrAppend(&text, ", ", SizeText(trial.peak_bytes));
    }
    if (trial.memory_part > 0) {
      absl::StrAppend(&text, " (", Percent(trial.memory_part), " of the memory)");
    }
  }
  if (trial.outcome == Outcome::kFits) {
    return text;
  }
  const std::string why = trial.why.empty() ? ToString(trial.outcome) : trial.why;
  return absl::StrCat(text, trial.measured.steps > 0 ? "; " : "", why);
}

std::string ChoiceLine(const TuneConfig& config, const Findings& findings) {
  DDL_CHECK(findings.choice.has_value());
  const std::int64_t micro = findings.choice->micro_batch_size;
  const bool is_alone = std::all_of(
      findings.trials.begin(), findings.trials.end(), [micro](const TrialResult& trial) {
        return trial.outcome != Outcome::kFits || trial.request.micro_batch_size == micro;
      });
  const std::string still = absl::StrCat(
      "micro-batch ", micro, is_alone ? ": the only one measured " : ": samples/s still rising ");
  switch (findings.choice->reason) {
    case Reason::kKnee:
      return absl::StrCat("knee: micro-batch ", micro,
                          ", the smallest with 90 % of the best samples/s");
    case Reason::kBound:
      return absl::StrCat(still, "at ",
                          config.bounded_by.empty() ? "the largest tried" : config.bounded_by,
                          "; allow more");
    case Reason::kMemory:
      return absl::StrCat(still, "where the memory ends; it is the largest found that fits");
    case Reason::kData:
      return absl::StrCat(still, "where the data ends; it is the largest found that fits");
    case Reason::kFailure:
      return absl::StrCat(still, "at the largest whose trial did not fail");
    case Reason::kUnfinished:
      return absl::StrCat(still, "when the search ended; it is the largest tried");
  }
  return "";
}

std::string FloorLine(const TuneConfig& config, const Findings& findings) {
  DDL_CHECK(findings.choice.has_value());
  const std::int64_t choice = findings.choice->micro_batch_size;
  return IsBelowFloor(config, choice)
             ? absl::StrCat("--", kFloorFlag, "=", config.plan.min_micro_batch_size.value_or(1),
                            " does not fit: the proposal has ", choice, " and no floor")
             : "";
}

std::string LossLine(const Findings& findings) {
  if (!findings.loss_difference.has_value() || !findings.half_micro.has_value()) {
    return "";
  }
  const std::int64_t half = findings.half_micro->request.micro_batch_size;
  const double difference = *findings.loss_difference;
  if (difference < 0) {
    return "loss: nothing to compare; the step logs have no losses";
  }
  const bool equal = difference <= kLossTolerance;
  return absl::StrCat(
      "loss: ", 2 * half, " x 1 and ", half, " x 2 differ by ", Percent(difference),
      equal ? ": the same curve"
            : absl::StrCat(", more than ", Percent(kLossTolerance),
                           ": the gradient is not the mean of the global batch, a layer such as "
                           "BatchNorm depends on the micro-batch, or the seed is not fixed"));
}

std::string ScalingLine(const Findings& findings) {
  if (!findings.scaling.has_value() || !findings.scaled.has_value()) {
    return "";
  }
  const std::int32_t workers = findings.scaled->request.nproc;
  const double efficiency = *findings.scaling / workers;
  return absl::StrCat(
      "scaling: ", workers, " workers do ", Rounded(*findings.scaling),
      " times the samples/s of one (", Percent(efficiency), ")",
      efficiency < kGoodScaling
          ? absl::StrCat(
                ": under ", Percent(kGoodScaling),
                ", communication-bound (or the workers share CPUs): fewer and larger steps "
                "by accumulation, or a faster link")
          : "");
}

std::string CsvHeader() {
  return "micro_batch_size,grad_accum_steps,workers,outcome,samples_per_s,samples_per_step,steps,"
         "seconds,peak_bytes,memory_part,output\n";
}

std::string CsvLine(const TrialResult& trial) {
  const Measurement& measured = trial.measured;
  return absl::StrCat(trial.request.micro_batch_size, ",", trial.request.grad_accum_steps, ",",
                      trial.request.nproc, ",",
                      trial.stop_signal != 0 ? "interrupted" : ToString(trial.outcome), ",",
                      measured.samples_per_s, ",", measured.samples_per_step, ",", measured.steps,
                      ",", measured.seconds, ",", trial.peak_bytes, ",", trial.memory_part, ",",
                      trial.request.name, ".log\n");
}

std::string YamlText(const TuneConfig& config, const Findings& findings) {
  DDL_CHECK(findings.choice.has_value());
  const std::int64_t choice = findings.choice->micro_batch_size;
  const TrialResult* const chosen = findings.Chosen();
  std::string text =
      absl::StrCat("# For ddlaunch --config. Found by: ddlaunch tune ", ProgramText(config),
                   "\n#\n", "# ", ChoiceLine(config, findings), "; the best is ",
                   Rounded(findings.best_samples_per_s), " samples/s.\n");
  if (chosen != nullptr) {
    absl::StrAppend(&text, "# It does ", Rounded(chosen->measured.samples_per_s),
                    " samples/s on one device");
    if (chosen->peak_bytes > 0 && findings.device_bytes > 0) {
      absl::StrAppend(&text, " with ", SizeText(chosen->peak_bytes), " of ",
                      SizeText(findings.device_bytes), " (", findings.device, ")");
    }
    absl::StrAppend(&text, ".\n");
  }
  for (const std::string& line :
       {FloorLine(config, findings), LossLine(findings), ScalingLine(findings)}) {
    absl::StrAppend(&text, line.empty() ? "" : absl::StrCat("# ", line, "\n"));
  }
  if (findings.interrupted) {
    absl::StrAppend(&text, "# It was interrupted: larger micro-batches may not have been tried.\n");
  }
  absl::StrAppend(&text, "#\n# Trials, of which trials.csv has more:\n");
  for (const TrialResult& trial : findings.trials) {
    absl::StrAppend(&text, "#   ", TrialLine(trial), "\n");
  }
  absl::StrAppend(&text, "\n");
  if (config.plan.global_batch_size.has_value()) {
    absl::StrAppend(&text, "max-micro-batch-size: ", choice, "\n");
  } else {
    absl::StrAppend(&text, "micro-batch-size: ", choice, "\ngrad-accum-steps: 1\n");
  }
  for (const auto& [name, value] : config.plan_flags) {
    if (name != kFloorFlag || !IsBelowFloor(config, choice)) {
      absl::StrAppend(&text, name, ": ", YamlScalar(value), "\n");
    }
  }
  return text;
}

}  // namespace ddl::tune
