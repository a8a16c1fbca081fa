// The course of a tuning: trials, checks, proposal, files. See tune.h.
#include "launcher/tune/tune.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/clock.h"
#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"
#include "agent/base/signal_name.h"
#include "agent/base/size_text.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"
#include "launcher/cli/plan_table.h"
#include "launcher/exit_code.h"
#include "launcher/log.h"
#include "launcher/poll_until.h"
#include "launcher/tune/child.h"
#include "launcher/tune/findings.h"
#include "launcher/tune/memory_meter.h"
#include "launcher/tune/report.h"
#include "launcher/tune/search.h"
#include "launcher/tune/trial.h"
#include "launcher/worker/worker_env.h"

namespace ddl {
namespace tune {
namespace {

constexpr int kFileMode = 0666;
constexpr int kDirectoryMode = 0777;

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::InternalError(ErrnoText("cannot write " + path, error));
}

// Writes the file anew, or adds to it.
absl::Status WriteFile(const std::string& path, std::string_view text, int how = O_TRUNC) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, kFileMode));
  if (!fd.valid()) {
    return CannotWrite(path, errno);
  }
  const int error = WriteAll(fd.get(), text);
  return error == 0 ? absl::OkStatus() : CannotWrite(path, error);
}

// The directory and those above it.
absl::Status MakeDirectory(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
      return absl::InternalError(ErrnoText("--tune-dir: cannot make " + part, errno));
    }
    if (at == std::string::npos) {
      return absl::OkStatus();
    }
  }
}

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
        runner_(config, memory_, signals),
        search_({.first = config.first_micro_batch_size, .most = config.max_micro_batch_size}) {
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
    const absl::Status reported = Report();
    if (!reported.ok()) {
      log::Error(std::string(reported.message()));
    }
    if (stop_signal_ != 0) {
      return kSignalExitBase + stop_signal_;
    }
    return status.ok() && reported.ok() ? 0 : exit_code_;
  }

 private:
  [[nodiscard]] std::string PathOf(std::string_view name) const {
    return absl::StrCat(config_.directory, "/", std::string(name));
  }

  absl::Status Prepare() {
    DDL_RETURN_IF_ERROR(MakeDirectory(config_.directory));
    DDL_RETURN_IF_ERROR(Claim());
    DDL_RETURN_IF_ERROR(WriteFile(PathOf("trials.csv"), CsvHeader()));
    log::Info(absl::StrCat(
        "tuning ", config_.program.front(), " on one device, of ", memory_.whose(),
        memory_.total_bytes() > 0 ? absl::StrCat(" with ", SizeText(memory_.total_bytes())) : "",
        "; results go to ", config_.directory));
    return absl::OkStatus();
  }

  // The directory, for as long as this process lives. What an earlier tuning proposed
  // is set aside, or it would be taken for the proposal of this one.
  absl::Status Claim() {
    claim_.reset(::open(config_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (::flock(claim_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return absl::InternalError(absl::StrCat("another ddlaunch tune writes to ", config_.directory,
                                              "; give another --tune-dir"));
    }
    ::rename(PathOf("tune.yaml").c_str(), PathOf("tune.yaml.old").c_str());
    for (const char* const picture : {"tune.svg", "tune.png"}) {
      ::unlink(PathOf(picture).c_str());
    }
    return absl::OkStatus();
  }

  // Runs a trial and adds it to trials.csv.
  absl::StatusOr<TrialResult> RunTrial(TrialRequest request) {
    constexpr std::size_t kNameBytes = 64;
    std::array<char, kNameBytes> name{};
    std::snprintf(name.data(), name.size(), "trial-%02d-micro-%lld", ++trials_run_,
                  static_cast<long long>(request.micro_batch_size));
    request.name = name.data();
    DDL_ASSIGN_OR_RETURN(TrialResult trial, runner_.Run(request));
    if (trial.stop_signal == 0) {
      Adjust(trial);
    } else {
      stop_signal_ = trial.stop_signal;
      findings_.interrupted = true;
    }
    DDL_RETURN_IF_ERROR(WriteFile(PathOf("trials.csv"), CsvLine(trial), O_APPEND));
    return trial;
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
        return absl::OkStatus();
      }
      const bool says_nothing =
          trial.outcome == Outcome::kFailed ||
          (trial.outcome != Outcome::kFits && trial.outcome != Outcome::kOutOfMemory &&
           trial.outcome != Outcome::kTooMuchMemory);
      log::Info(TrialLine(trial));
      search_.Record(*micro, trial.outcome, trial.measured.samples_per_s);
      findings_.trials.push_back(std::move(trial));
      const TrialResult& last = findings_.trials.back();
      if (says_nothing && findings_.trials.size() == 1) {
        return FirstFailed(last);
      }
      if (IgnoresPlan()) {
        return absl::InternalError(absl::StrCat(
            config_.program.front(), " does a step of ", first_samples_,
            " samples whatever DDL_MICRO_BATCH_SIZE says: it must take its micro-batch from the "
            "plan to be tuned"));
      }
      if (last.outcome == Outcome::kFailed) {
        log::Warn(absl::StrCat("taken for the end of what fits; its output is in ", last.output));
      }
    }
    Decide();
    return findings_.choice.has_value()
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat("no micro-batch fits, not even ",
                                                  findings_.trials.back().request.micro_batch_size,
                                                  ": see ", findings_.trials.back().output));
  }

  absl::Status FirstFailed(const TrialResult& trial) {
    exit_code_ = trial.exit_code != 0 ? trial.exit_code : kExitFailure;
    log::Raw(LastLines(trial.output));
    return absl::InternalError(absl::StrCat("the first trial of ", config_.program.front(),
                                            " measured nothing: ", trial.why,
                                            "; all of its output is in ", trial.output));
  }

  void Decide() {
    findings_.choice = search_.Choice();
    if (findings_.choice.has_value()) {
      findings_.best_samples_per_s = BestThroughput(search_.Curve());
      log::Info(absl::StrCat("knee: micro-batch ", *findings_.choice,
                             ", the smallest with 90 % of the best samples/s"));
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
    const std::int64_t micro = *findings_.choice;
    if (micro % 2 != 0) {
      log::Warn(absl::StrCat("loss: not compared, for a micro-batch of ", micro, " has no half"));
      return absl::OkStatus();
    }
    DDL_ASSIGN_OR_RETURN(
        TrialResult half,
        RunTrial({.name = "", .micro_batch_size = micro / 2, .grad_accum_steps = 2}));
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
    DDL_ASSIGN_OR_RETURN(
        TrialResult scaled,
        RunTrial({.name = "", .micro_batch_size = *findings_.choice, .nproc = config_.nproc}));
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

  absl::Status Report() {
    if (findings_.trials.empty()) {
      return absl::OkStatus();
    }
    if (!findings_.choice.has_value() && findings_.interrupted) {
      Decide();
    }
    std::string written = PathOf("trials.csv");
    if (findings_.choice.has_value()) {
      absl::Status proposed = WriteFile(PathOf("tune.yaml"), YamlText(config_, findings_));
      if (!proposed.ok()) {
        // Half of it is a file of other flags.
        ::unlink(PathOf("tune.yaml").c_str());
        return proposed;
      }
      absl::StrAppend(&written, ", tune.yaml");
    }
    if (!search_.Curve().empty() && Draw()) {
      absl::StrAppend(&written, ", tune.svg, tune.png");
    }
    log::Info(absl::StrCat("written: ", written));
    if (findings_.choice.has_value() && !findings_.interrupted) {
      Propose();
    }
    return absl::OkStatus();
  }

  // Whether there is a picture.
  bool Draw() {
    if (const absl::Status script = WriteFile(PathOf("tune.gp"), GnuplotScript(config_, findings_));
        !script.ok()) {
      log::Warn(std::string(script.message()));
      return false;
    }
    auto child = Child::Start({.argv = {"gnuplot", "tune.gp"},
                               .path = "",
                               .environment = OwnEnvironment(),
                               .cwd = config_.directory,
                               .output = PathOf("gnuplot.log")});
    const int code = child.ok() ? WaitFor(*child) : kExitFailure;
    if (code == 0) {
      ::unlink(PathOf("gnuplot.log").c_str());
      return true;
    }
    log::Warn(code == kExitNotFound
                  ? absl::StrCat("no picture: there is no gnuplot (Debian: gnuplot-nox); ",
                                 "with it, run: cd ", config_.directory, " && gnuplot tune.gp")
                  : absl::StrCat("no picture: gnuplot failed, see ", PathOf("gnuplot.log")));
    return false;
  }

  static int WaitFor(Child& child) {
    constexpr Duration kLongest = std::chrono::seconds(60);
    const Instant deadline = MonotonicNow() + kLongest;
    for (;;) {
      if (const std::optional<int> code = child.TryReap()) {
        return *code;
      }
      if (MonotonicNow() >= deadline) {
        return kExitFailure;  // Child's end kills it
      }
      std::array<pollfd, 1> fds{{{child.pidfd(), POLLIN, 0}}};
      PollUntil(fds, deadline);
    }
  }

  void Propose() {
    plan::Request request = ProposedRequest(config_, *findings_.choice);
    // As ddlaunch plan: a table of refusals helps nobody.
    request.batch_policy = request.batch_policy.value_or(plan::BatchPolicy::kNearest);
    std::vector<cli::WorldPlan> worlds;
    for (const std::int64_t world : config_.worlds) {
      worlds.push_back({world, plan::Solve(request, world)});
    }
    std::fputs(cli::PlanTable(request, worlds).c_str(), stdout);
    std::fflush(stdout);
    log::Info(absl::StrCat("go on with: ddlaunch --config=", PathOf("tune.yaml"),
                           " --nproc-per-node=N ", config_.program.front(), " ..."));
  }

  const TuneConfig& config_;
  SignalSet& signals_;
  MemoryMeter memory_;
  TrialRunner runner_;
  Search search_;
  Findings findings_;
  UniqueFd claim_;
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
