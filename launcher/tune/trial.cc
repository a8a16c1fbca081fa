// A trial's life, from its command line to its verdict: see trial.h.
#include "launcher/tune/trial.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/clock.h"
#include "agent/base/file_io.h"
#include "agent/base/signal_name.h"
#include "agent/base/status_macros.h"
#include "agent/base/unique_fd.h"
#include "launcher/exit_code.h"
#include "launcher/poll_until.h"
#include "launcher/tune/child.h"
#include "launcher/tune/last_words.h"
#include "launcher/tune/results.h"

namespace ddl::tune {
namespace {

// How often the step log and the memory are looked at.
constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kMemoryTick = std::chrono::milliseconds(100);
// ... and the user is told.
constexpr Duration kProgressTick = std::chrono::milliseconds(200);
// Without a step for so long, it may be the disk that takes no more.
constexpr Duration kSilence = std::chrono::seconds(1);
// A step of a small model takes microseconds: that many more are measured.
constexpr double kLeastSeconds = 2;
constexpr std::int64_t kLeastSteps = 3;
// Beyond the shutdown timeout of the trial's own ddlaunch.
constexpr Duration kStopMargin = std::chrono::seconds(5);

std::string Tail(const std::string& path) {
  constexpr std::int64_t kTailBytes = 65536;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0) {
    return "";
  }
  ::lseek(fd.get(), std::max<std::int64_t>(0, about.st_size - kTailBytes), SEEK_SET);
  return ReadUpTo(fd.get(), kTailBytes);
}

std::vector<std::string> CommandLine(const TuneConfig& config, const TrialRequest& request) {
  std::vector<std::string> argv = {"ddlaunch"};
  argv.insert(argv.end(), config.launch_flags.begin(), config.launch_flags.end());
  argv.insert(argv.end(), {"--standalone", absl::StrCat("--nproc-per-node=", request.nproc),
                           absl::StrCat("--micro-batch-size=", request.micro_batch_size),
                           // Lower is no answer here: then it does not fit.
                           absl::StrCat("--min-micro-batch-size=", request.micro_batch_size),
                           absl::StrCat("--grad-accum-steps=", request.grad_accum_steps), "--"});
  argv.insert(argv.end(), config.program.begin(), config.program.end());
  return argv;
}

// All flags were read, those of variables too.
std::vector<std::string> EnvironmentFor(const std::string& step_log) {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("PET_") && !text.starts_with("DDL_STEP_LOG=")) {
      entries.emplace_back(text);
    }
  }
  entries.push_back("DDL_STEP_LOG=" + step_log);
  return entries;
}

// Follows a step log as it grows.
class StepFollower {
 public:
  explicit StepFollower(std::string path) : path_(std::move(path)) { ::unlink(path_.c_str()); }

  void Read() {
    constexpr std::size_t kMostAtOnce = std::size_t{4} << 20U;
    if (!fd_.valid()) {
      fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    }
    if (fd_.valid()) {
      text_ += ReadUpTo(fd_.get(), kMostAtOnce);
      std::size_t position = 0;
      ReadSteps(text_, &position, &steps_, &strange_lines_);
      text_.erase(0, position);
    }
  }
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  [[nodiscard]] std::int64_t strange_lines() const { return strange_lines_; }

 private:
  std::string path_;
  UniqueFd fd_;
  std::string text_;  // the piece of a line that is not whole
  std::vector<Step> steps_;
  std::int64_t strange_lines_ = 0;
};

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// One run of a trial's process.
class Run {
 public:
  Run(const TuneConfig& config, const MemoryMeter& memory, SignalSet& signals,
      ProgressLine& progress, std::int64_t micro_batch_size, Child& child, StepFollower& follower)
      : config_(config),
        memory_(memory),
        signals_(signals),
        progress_(progress),
        micro_batch_size_(micro_batch_size),
        child_(child),
        follower_(follower),
        start_(MonotonicNow()),
        deadline_(start_ + config.trial_timeout),
        seen_at_(start_) {}

  // Returns when the process has ended.
  void Watch() {
    signals_.SetSuspendHook([this](bool stopping) {
      progress_.Clear();
      child_.Signal(stopping ? SIGTSTP : SIGCONT);
    });
    while (!exit_code_.has_value()) {
      std::array<pollfd, 2> fds{{{child_.pidfd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}}};
      PollUntil(fds, MonotonicNow() + kTick);
      TakeSignals();
      follower_.Read();
      LookAtMemory();
      exit_code_ = child_.TryReap();
      if (!exit_code_.has_value()) {
        StopWhenDue();
        ShowProgress();
      }
    }
    progress_.Clear();
    follower_.Read();
    signals_.SetSuspendHook(nullptr);
  }

  [[nodiscard]] int exit_code() const { return *exit_code_; }
  [[nodiscard]] bool was_stopped() const { return kill_at_.has_value(); }
  [[nodiscard]] bool is_disk_full() const { return is_disk_full_; }
  [[nodiscard]] int stop_signal() const { return stop_signal_; }
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  void TakeSignals() {
    for (const int signal : signals_.Read()) {
      if (!signals_.IsStop(signal)) {
        continue;
      }
      if (stop_signal_ != 0) {
        child_.Signal(SIGKILL);  // the second one does not wait
      }
      stop_signal_ = signal;
      Stop();
    }
  }

  void LookAtMemory() {
    if (MonotonicNow() >= look_at_ && !kill_at_.has_value()) {
      peak_bytes_ = std::max(peak_bytes_, memory_.UsedBytes(child_.pid()));
      look_at_ = MonotonicNow() + kMemoryTick;
    }
  }

  void ShowProgress() {
    const Instant now = MonotonicNow();
    if (now < show_at_ || kill_at_.has_value()) {
      return;
    }
    show_at_ = now + kProgressTick;
    const std::vector<Step>& steps = follower_.steps();
    progress_.Show(ProgressText({.micro_batch_size = micro_batch_size_,
                                 .steps = static_cast<std::int64_t>(steps.size()),
                                 .steps_wanted = StepsWanted(),
                                 .samples_per_s = Measure(steps).samples_per_s,
                                 .seconds = Seconds(now - start_),
                                 .seconds_allowed = Seconds(config_.trial_timeout)}));
  }

  [[nodiscard]] std::int64_t StepsWanted() const {
    return config_.trial_steps + static_cast<std::int64_t>(kWarmUpSteps);
  }

  void Stop() {
    if (!kill_at_.has_value()) {
      look_at_ = {};
      LookAtMemory();  // once at least after the last step that counts
      progress_.Clear();
      child_.Signal(SIGTERM);
      kill_at_ = MonotonicNow() + config_.shutdown_timeout + kStopMargin;
    }
  }

  void StopWhenDue() {
    const Instant now = MonotonicNow();
    if (kill_at_.has_value()) {
      if (now >= *kill_at_) {
        child_.Signal(SIGKILL);
      }
      return;
    }
    const std::vector<Step>& steps = follower_.steps();
    if (!steps.empty() && !has_begun_) {
      has_begun_ = true;
      deadline_ = now + config_.trial_time;
    }
    if (steps.size() > kWarmUpSteps) {
      for (; counted_ < steps.size(); ++counted_) {
        seconds_ += counted_ < kWarmUpSteps ? 0 : steps[counted_].seconds;
      }
    }
    const bool enough =
        static_cast<std::int64_t>(steps.size()) >= StepsWanted() && seconds_ >= kLeastSeconds;
    if (steps.size() > seen_) {
      seen_ = steps.size();
      seen_at_ = now;
    }
    is_disk_full_ = !enough && now - seen_at_ >= kSilence && IsDiskFull(config_.directory);
    if (enough || is_disk_full_ || now >= deadline_) {
      Stop();
    }
  }

  const TuneConfig& config_;
  const MemoryMeter& memory_;
  SignalSet& signals_;
  ProgressLine& progress_;
  std::int64_t micro_batch_size_;
  Child& child_;
  StepFollower& follower_;
  Instant start_;
  Instant deadline_;  // first of the first step, then of the trial
  Instant show_at_{};
  std::size_t seen_ = 0;  // steps
  Instant seen_at_;
  Instant look_at_{};
  std::optional<Instant> kill_at_;
  std::optional<int> exit_code_;
  bool has_begun_ = false;
  bool is_disk_full_ = false;
  std::size_t counted_ = 0;
  double seconds_ = 0;
  int stop_signal_ = 0;
  std::int64_t peak_bytes_ = 0;
};

std::string InSeconds(Duration duration) {
  return absl::StrCat(Seconds(duration), " s");
}

std::string ExitText(int code) {
  return code > kSignalExitBase && code < kSignalExitBase + NSIG
             ? absl::StrCat("it died of ", SignalName(code - kSignalExitBase))
             : absl::StrCat("it exited with code ", code);
}

// What a process that ended by itself, or that was never stopped, has shown.
void Judge(const TuneConfig& config, const Run& run, const StepFollower& follower,
           TrialResult& result) {
  const auto seen = result.steps.size();
  if (!run.was_stopped() && run.exit_code() != 0) {
    const bool is_oom =
        config.oom_exit_codes.contains(run.exit_code()) || SaysOutOfMemory(Tail(result.output));
    result.outcome = is_oom ? Outcome::kOutOfMemory : Outcome::kFailed;
    result.why = is_oom ? "out of memory" : ExitText(run.exit_code());
    result.exit_code = run.exit_code();
    return;
  }
  if (seen == 0) {
    result.outcome = run.was_stopped() ? Outcome::kTooSlow : Outcome::kFailed;
    result.why = absl::StrCat(
        run.was_stopped() ? absl::StrCat("no step within ", InSeconds(config.trial_timeout))
                          : "it ended without a step",
        follower.strange_lines() > 0 ? absl::StrCat(" (", follower.strange_lines(),
                                                    " lines of its step log are not of the form)")
                                     : "",
        "; it must leave a line for each in the file DDL_STEP_LOG (see ddlaunch tune --help)");
    return;
  }
  if (result.measured.steps < kLeastSteps) {
    result.outcome = run.was_stopped() ? Outcome::kTooSlow : Outcome::kDataEnds;
    result.why = run.was_stopped()
                     ? absl::StrCat("only ", seen, " steps within ", InSeconds(config.trial_time),
                                    ": give it more --trial-seconds")
                     : absl::StrCat("it ended after ", seen, seen == 1 ? " step" : " steps",
                                    ", too few to measure: let it train longer");
    return;
  }
  result.outcome =
      result.memory_part > config.memory_limit ? Outcome::kTooMuchMemory : Outcome::kFits;
}

}  // namespace

absl::StatusOr<TrialResult> TrialRunner::Run(const TrialRequest& request) {
  TrialResult result;
  result.request = request;
  result.output = absl::StrCat(config_.directory, "/", request.name, ".log");
  std::string step_log = absl::StrCat(config_.directory, "/", request.name, ".steps");
  if (!step_log.starts_with('/')) {
    // The program may change its directory.
    std::array<char, 4096> cwd{};
    step_log =
        absl::StrCat(::getcwd(cwd.data(), cwd.size()) == nullptr ? "." : cwd.data(), "/", step_log);
  }
  StepFollower follower(step_log);
  DDL_ASSIGN_OR_RETURN(Child child, Child::Start({.argv = CommandLine(config_, request),
                                                  .path = "/proc/self/exe",
                                                  .environment = EnvironmentFor(step_log),
                                                  .cwd = "",
                                                  .output = result.output}));
  ddl::tune::Run run(config_, memory_, signals_, progress_, request.micro_batch_size, child,
                     follower);
  run.Watch();
  if (run.is_disk_full()) {
    return absl::InternalError(absl::StrCat("the disk of ", config_.directory,
                                            " is full: the trial of micro-batch ",
                                            request.micro_batch_size, " cannot leave its steps"));
  }
  result.steps = follower.steps();
  result.measured = Measure(result.steps);
  result.stop_signal = run.stop_signal();
  result.peak_bytes = !memory_.is_gpu() && result.measured.peak_bytes > 0
                          ? result.measured.peak_bytes
                          : run.peak_bytes();
  if (memory_.total_bytes() > 0) {
    result.memory_part =
        static_cast<double>(result.peak_bytes) / static_cast<double>(memory_.total_bytes());
  }
  Judge(config_, run, follower, result);
  return result;
}

std::string LastLines(const std::string& path) {
  constexpr std::size_t kLines = 8;
  std::vector<std::string> lines = absl::StrSplit(Tail(path), '\n', absl::SkipWhitespace());
  std::string text;
  for (std::size_t i = lines.size() > kLines ? lines.size() - kLines : 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, "    ", lines[i], "\n");
  }
  return text;
}

}  // namespace ddl::tune
