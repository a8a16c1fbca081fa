// The course of a tuning: trials, checks, proposal, files. See tune.h.
#include "launcher/tune/tune.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/signal_name.h"
#include "agent/base/size_text.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/plan_table.h"
#include "launcher/exit_code.h"
#include "launcher/log.h"
#include "launcher/standard_streams.h"
#include "launcher/tune/drawing.h"
#include "launcher/tune/findings.h"
#include "launcher/tune/memory_meter.h"
#include "launcher/tune/progress.h"
#include "launcher/tune/proposal.h"
#include "launcher/tune/report.h"
#include "launcher/tune/results.h"
#include "launcher/tune/search.h"
#include "launcher/tune/trial.h"
#include "launcher/worker/worker_env.h"

namespace ddl {
namespace tune {
namespace {

EnvironmentMap OwnVariables() {
  EnvironmentMap variables;
  for (const std::string& entry : OwnEnvironment()) {
    const std::size_t equals = entry.find('=');
    variables.emplace(entry.substr(0, equals),
                      equals == std::string::npos ? "" : entry.substr(equals + 1));
  }
  return variables;
}

class Tuner {
 public:
  Tuner(const TuneConfig& config, SignalSet& signals)
      : config_(config),
        signals_(signals),
        memory_(OwnVariables(), DeviceSources{}),
        progress_(!config.quiet),
        runner_(config, memory_, signals, progress_),
        search_({.first = config.first_micro_batch_size, .most = config.max_micro_batch_size}),
        results_(config.directory) {
    findings_.device = memory_.whose();
    findings_.device_bytes = memory_.total_bytes();
  }

  int Run() {
    absl::Status status = Prepare();
    if (status.ok()) {
      status = Explore();
    }
    if (status.ok() && stop_signal_ == 0) {
      status = Check();
    }
    if (!status.ok()) {
      log::Error(std::string(status.message()));
    }
    const bool reported = Report();
    if (stop_signal_ != 0) {
      return kSignalExitBase + stop_signal_;
    }
    return status.ok() && reported ? 0 : exit_code_;
  }

 private:
  absl::Status Prepare() {
    DDL_RETURN_IF_ERROR(results_.Open());
    DDL_RETURN_IF_ERROR(results_.Write("trials.csv", CsvHeader()));
    log::Info(absl::StrCat(
        "tuning ", config_.program.front(), " on one device, of ", memory_.whose(),
        memory_.total_bytes() > 0 ? absl::StrCat(" with ", SizeText(memory_.total_bytes())) : "",
        "; results go to ", config_.directory));
    return absl::OkStatus();
  }

  absl::StatusOr<TrialResult> RunTrial(TrialRequest request) {
    constexpr std::size_t kNameBytes = 64;
    std::array<char, kNameBytes> name{};
    std::snprintf(name.data(), name.size(), "trial-%02d-micro-%lld", ++trials_run_,
                  static_cast<long long>(request.micro_batch_size));
    request.name = name.data();
    absl::StatusOr<TrialResult> trial = runner_.Run(request);
    findings_.interrupted = !trial.ok() || trial->stop_signal != 0;
    if (trial.ok()) {
      stop_signal_ = trial->stop_signal;
      if (stop_signal_ == 0) {
        Adjust(*trial);
      }
    }
    return trial;
  }

  // Adds it to trials.csv. What cannot be written ends the search, for no further trial
  // could leave its steps.
  absl::Status Keep(const TrialResult& trial) {
    absl::Status kept = results_.Append("trials.csv", CsvLine(trial));
    findings_.interrupted = findings_.interrupted || !kept.ok();
    return kept;
  }

  // What only the comparison with the first trial shows. The samples of a step may
  // be counted in something else (tokens), as long as they go with the micro-batch.
  void Adjust(TrialResult& trial) {
    const double size = static_cast<double>(trial.request.micro_batch_size) *
                        static_cast<double>(trial.request.grad_accum_steps) * trial.request.nproc;
    if (trial.measured.steps == 0) {
      return;
    }
    if (samples_per_size_ == 0) {
      samples_per_size_ = trial.measured.samples_per_step / size;
      first_samples_ = trial.measured.samples_per_step;
    } else if (trial.outcome == Outcome::kFits &&
               trial.measured.samples_per_step < Enough() * samples_per_size_ * size) {
      trial.outcome = Outcome::kDataEnds;
      trial.why = absl::StrCat("its steps have ", trial.measured.samples_per_step,
                               " samples: there is no more data");
    }
  }

  // The part of the samples expected below which a step is not whole; tokens differ
  // more, the more the fewer texts there are in a step.
  [[nodiscard]] double Enough() const {
    constexpr double kOfSamples = 0.99;
    constexpr double kOfTokens = 0.6;
    return samples_per_size_ == 1 ? kOfSamples : kOfTokens;
  }

  // The program went on with its own number.
  [[nodiscard]] bool IgnoresPlan() const {
    constexpr std::size_t kTwo = 2;
    return findings_.trials.size() == kTwo && findings_.trials.back().measured.steps > 0 &&
           findings_.trials.back().measured.samples_per_step == first_samples_ &&
           findings_.trials.back().outcome == Outcome::kDataEnds;
  }

  absl::Status Explore() {
    while (const std::optional<std::int64_t> micro = search_.Next()) {
      DDL_ASSIGN_OR_RETURN(TrialResult trial, RunTrial({.name = "", .micro_batch_size = *micro}));
      if (trial.stop_signal != 0) {
        return Keep(trial);
      }
      log::Info(TrialLine(trial));
      search_.Record(*micro, trial.outcome, trial.measured.samples_per_s);
      findings_.trials.push_back(std::move(trial));
      DDL_RETURN_IF_ERROR(Keep(findings_.trials.back()));
      DDL_RETURN_IF_ERROR(Understand(findings_.trials.back()));
    }
    Decide();
    return findings_.choice.has_value()
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat("no micro-batch fits, not even ",
                                                  findings_.trials.back().request.micro_batch_size,
                                                  ": see ", findings_.trials.back().output));
  }

  // Whether there is sense in a further trial.
  absl::Status Understand(const TrialResult& trial) {
    const bool says_nothing = trial.outcome != Outcome::kFits &&
                              trial.outcome != Outcome::kOutOfMemory &&
                              trial.outcome != Outcome::kTooMuchMemory;
    if (says_nothing && findings_.trials.size() == 1) {
      return FirstFailed(trial);
    }
    if (IgnoresPlan()) {
      return absl::InternalError(absl::StrCat(
          config_.program.front(), " does a step of ", first_samples_,
          " samples whatever DDL_MICRO_BATCH_SIZE says: it must take its micro-batch from the "
          "plan to be tuned"));
    }
    if (trial.outcome == Outcome::kFailed) {
      log::Warn(absl::StrCat("taken for the end of what fits; its output is in ", trial.output));
    }
    return absl::OkStatus();
  }

  absl::Status FirstFailed(const TrialResult& trial) {
    exit_code_ = trial.exit_code != 0 ? trial.exit_code : kExitFailure;
    log::Raw(LastLines(trial.output));
    return absl::InternalError(absl::StrCat("the first trial of ", config_.program.front(),
                                            " measured nothing: ", trial.why,
                                            "; all of its output is in ", trial.output));
  }

  void Decide() {
    findings_.choice = search_.Chosen();
    if (!findings_.choice.has_value()) {
      return;
    }
    findings_.best_samples_per_s = BestThroughput(search_.Curve());
    log::Info(ChoiceLine(config_, findings_));
    if (const std::string floor = FloorLine(config_, findings_); !floor.empty()) {
      log::Warn(floor);
    }
  }

  absl::Status Check() {
    if (config_.check_loss) {
      DDL_RETURN_IF_ERROR(CheckLoss());
    }
    if (config_.check_scaling && stop_signal_ == 0) {
      DDL_RETURN_IF_ERROR(CheckScaling());
    }
    return absl::OkStatus();
  }

  absl::Status CheckLoss() {
    const std::int64_t micro = findings_.choice->micro_batch_size;
    if (micro % 2 != 0) {
      log::Warn(absl::StrCat("loss: not compared, for a micro-batch of ", micro, " has no half"));
      return absl::OkStatus();
    }
    DDL_ASSIGN_OR_RETURN(
        TrialResult half,
        RunTrial({.name = "", .micro_batch_size = micro / 2, .grad_accum_steps = 2}));
    DDL_RETURN_IF_ERROR(Keep(half));
    if (half.stop_signal != 0) {
      return absl::OkStatus();
    }
    if (half.measured.steps == 0 || half.outcome == Outcome::kFailed) {
      log::Warn(absl::StrCat("loss: not compared, for the trial with accumulation failed: ",
                             half.why, "; its output is in ", half.output));
      return absl::OkStatus();
    }
    findings_.loss_difference = LossDifference(findings_.Chosen()->steps, half.steps);
    findings_.half_micro = std::move(half);
    Say(LossLine(findings_), *findings_.loss_difference <= kLossTolerance);
    return absl::OkStatus();
  }

  absl::Status CheckScaling() {
    DDL_ASSIGN_OR_RETURN(TrialResult scaled,
                         RunTrial({.name = "",
                                   .micro_batch_size = findings_.choice->micro_batch_size,
                                   .nproc = config_.nproc}));
    DDL_RETURN_IF_ERROR(Keep(scaled));
    if (scaled.stop_signal != 0) {
      return absl::OkStatus();
    }
    if (scaled.measured.samples_per_s <= 0 || scaled.outcome == Outcome::kFailed) {
      log::Warn(absl::StrCat("scaling: not measured, for the trial with ", config_.nproc,
                             " workers failed: ", scaled.why, "; its output is in ",
                             scaled.output));
      return absl::OkStatus();
    }
    findings_.scaling = scaled.measured.samples_per_s / findings_.Chosen()->measured.samples_per_s;
    findings_.scaled = std::move(scaled);
    Say(ScalingLine(findings_), *findings_.scaling >= kGoodScaling * config_.nproc);
    return absl::OkStatus();
  }

  static void Say(const std::string& line, bool is_good) {
    if (is_good) {
      log::Info(line);
    } else {
      log::Warn(line);
    }
  }

  // Whatever happened before, what was measured is written and shown. False: something
  // could not be, and it was said.
  bool Report() {
    if (stop_signal_ != 0) {
      log::Warn(absl::StrCat(
          "stopped by ", SignalName(stop_signal_), "; ",
          findings_.trials.empty() ? "no trial had ended" : "what was measured before is kept"));
    }
    if (findings_.trials.empty()) {
      return true;
    }
    if (!findings_.choice.has_value() && findings_.interrupted) {
      Decide();
    }
    std::string written = results_.PathOf("trials.csv");
    bool is_good = true;
    if (findings_.choice.has_value()) {
      is_good = SayError(results_.Write("tune.yaml", YamlText(config_, findings_)));
      absl::StrAppend(&written, is_good ? ", tune.yaml" : "");
    }
    if (!search_.Curve().empty()) {
      const absl::Status drawn = Draw(results_, GnuplotScript(config_, findings_));
      absl::StrAppend(&written, drawn.ok() ? ", tune.svg, tune.png" : "");
      if (!drawn.ok()) {
        log::Warn(absl::StrCat("no picture: ", std::string(drawn.message())));
      }
    }
    log::Info(absl::StrCat("written: ", written));
    if (!findings_.choice.has_value() || stop_signal_ != 0) {
      return is_good;
    }
    is_good = Propose() && is_good;
    if (is_good) {
      log::Info(absl::StrCat("go on with: ddlaunch --config=", results_.PathOf("tune.yaml"),
                             " --nproc-per-node=N ", config_.program.front(), " ..."));
    }
    return is_good;
  }

  // False: it was none.
  static bool SayError(const absl::Status& status) {
    if (!status.ok()) {
      log::Error(std::string(status.message()));
    }
    return status.ok();
  }

  // False: it cannot be followed, or not be shown.
  bool Propose() {
    const plan::Request request = ProposedRequest(config_, findings_.choice->micro_batch_size);
    std::vector<cli::WorldPlan> worlds;
    bool any = false;
    for (const std::int64_t world : config_.worlds) {
      worlds.push_back({world, plan::Solve(request, world)});
      any = any || worlds.back().plan.ok();
    }
    if (!SayError(PrintToStdout(cli::PlanTable(request, worlds)))) {
      return false;
    }
    if (!any) {
      log::Error("no world has a plan with this micro-batch; the table has the reason");
      return false;
    }
    return true;
  }

  const TuneConfig& config_;
  SignalSet& signals_;
  MemoryMeter memory_;
  ProgressLine progress_;
  TrialRunner runner_;
  Search search_;
  Results results_;
  Findings findings_;
  int trials_run_ = 0;
  double samples_per_size_ = 0;  // by the first trial; usually 1
  double first_samples_ = 0;
  int stop_signal_ = 0;
  int exit_code_ = kExitFailure;
};

}  // namespace
}  // namespace tune

int RunTune(const TuneConfig& config, SignalSet& signals) {
  return tune::Tuner(config, signals).Run();
}

}  // namespace ddl
