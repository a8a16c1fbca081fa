// --help, made from the table of flags.
#include "launcher/cli/help.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "launcher/cli/flags.h"

namespace ddl::cli {
namespace {

constexpr std::string_view kUsage =
    "Usage: ddlaunch [FLAG ...] [--] PROGRAM [ARG ...]\n"
    "       ddlaunch coordinator | plan | tune [FLAG ...]   (each with its own --help)\n";
constexpr std::string_view kCoordinatorUsage = "Usage: ddlaunch coordinator [FLAG ...]\n";
constexpr std::string_view kPlanUsage = "Usage: ddlaunch plan [FLAG ...]\n";
constexpr std::string_view kTuneUsage = "Usage: ddlaunch tune [FLAG ...] [--] PROGRAM [ARG ...]\n";

constexpr std::string_view kPurpose =
    R"(Starts workers of PROGRAM on this node, meets the job's other nodes, gives every
worker its rank and the training plan, watches them, restarts them on failure.
NAME.py runs by python3 -u; every other executable runs as it is.
)";
constexpr std::string_view kCoordinatorPurpose =
    R"(Serves the meetings of many jobs until it is stopped. Their nodes come to it by
--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT, each job by an --rdzv-id of its own.
)";
constexpr std::string_view kPlanPurpose =
    R"(Shows, for each world, what a job would agree on that starts with it: micro-batch, micro-steps,
the actual global batch and what follows from it, and why a world has no plan. Starts nothing.
)";
constexpr std::string_view kTunePurpose =
    R"(Finds the micro-batch that suits PROGRAM on this node's device: short trials with one worker,
the micro-batch doubled from 1 on until memory, data or the gain in samples/s ends. Proposes a plan.
)";

constexpr std::string_view kRemarks =
    R"(--rdzv-conf, in seconds: join_timeout=600; last_call_timeout=5, from MIN nodes on, for more;
  heartbeat_timeout=5, the silence that loses a node (or keep_alive_interval x
  keep_alive_max_attempt); close_timeout=5, for the others' goodbyes. And is_host=0 or 1:
  whether this node serves the meeting.

"ddlaunch coordinator --listen ADDR" serves the meetings of many jobs and outlives them; see its
  --help. (A program that is called coordinator is run as ./coordinator.)

Each flag may be written with _ for -, be shortened while that is unambiguous, and takes its
  default from PET_NAME (PET_NPROC_PER_NODE=4). What follows PROGRAM is its own.

Exit status: the failed worker's own, or 128 + signal; 2 usage, 126 / 127 no such program.
)";
constexpr std::string_view kCoordinatorRemarks =
    R"(--rdzv-conf: heartbeat_timeout=5, the seconds of silence that lose a node, or
  keep_alive_interval x keep_alive_max_attempt. A job's nodes give the other keys.

SIGTERM or SIGINT ends it with status 0; jobs that run then look for it for a while.
)";

constexpr std::string_view kPlanRemarks =
    R"(--batch-policy, for a world that cannot share the global batch evenly: nearest, even shares of
  the global batch next to it, and the rate follows (the default here, and of a job whose nodes
  come and go); exact, shares that differ by one sample, for programs that weight gradients by
  samples, as the SDK does; fail, no plan (the default of a job of fixed size).

--lr-scaling: linear, --base-lr x k where k = global batch / --base-batch-size; sqrt, x the root
  of k; none. The global batch is the actual one; neither world nor micro-steps play a part.

The warm-up rises in equal increments from --warmup-start-lr; give its steps, ratio or epochs.
  Then --lr-decay: constant; step, x --lr-decay-factor at each interval from the start of training
  on; cosine or linear, to 0 at --total-samples. All are kept in samples, steps being those at the
  batch asked for: another world neither repeats nor skips a part of them.

--scale-adam, with sqrt: betas 1 - k (1 - beta), eps / the root of k; no plan where k (1 - beta)
  is 1 or more (Malladi et al. 2022).

--json: {"request": {...}, "worlds": [{...}]}, numbers by the names of their flags with _ for -;
  a world without a plan has "error". Without --world: 1..8.

Exit status: 0 some world has a plan, 2 none has. (A program that is called plan: ./plan.)
)";
constexpr std::string_view kTuneRemarks =
    R"(The choice is the knee: the smallest micro-batch with 90 % of the best samples/s measured; the
  curve is smoothed by running medians of three before. Where it still rises at the largest that
  fits (a doubling gains more than 10 %), there is no knee, and that one is chosen.

PROGRAM takes its micro-batch from the plan (DDL_MICRO_BATCH_SIZE) and leaves a line for each
  optimizer step in the file DDL_STEP_LOG, as every program does that uses DataParallel of the
  SDK: step,samples,seconds,loss,peak_bytes (0: not known). It runs once for each trial, until
  SIGTERM: give it enough epochs, and no checkpoint directory that matters.

Memory is the GPU's by NVML; without one, what the step log says, or the workers' resident set.
  A short trial sees less than the peak of a whole training: --memory-limit=0.8 leaves more room.

Of a launch's flags those of the program, the plan and the rate are taken, and what else has a
  meaning here. Each trial has one worker, and the rate of the smallest micro-batch without warm-up
  and decay; the numbers of workers and nodes are the proposal's.

In --tune-dir: tune.yaml, which --config takes; trials.csv; tune.svg and tune.png, by gnuplot;
  output and step log of each trial. Ctrl-C leaves what was measured.
)";

constexpr Example kExamples[] = {
    {"ddlaunch --nproc_per_node=4 train_bin", "four workers here"},
    {"ddlaunch --nproc_per_node=gpu train.py --epochs 3", "one for each GPU"},
    {"ddlaunch --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host0 train.py", "on both nodes"},
    {"ddlaunch --nproc_per_node=4 --global-batch-size=256 train_bin", "64 samples each"},
};
constexpr Example kCoordinatorExamples[] = {
    {"ddlaunch coordinator --listen 10.0.0.1:29400 --rdzv-token-file=token", "asks for a token"},
    {"ddlaunch coordinator --listen 127.0.0.1:0", "any port"},
};
constexpr Example kPlanExamples[] = {
    {"ddlaunch plan --global-batch-size=1024 --max-micro-batch-size=64", "worlds 1 to 8"},
    {"ddlaunch plan --global-batch-size=48 --micro-batch-size=4 --world=2..5,8", "also 8"},
};
constexpr Example kTuneExamples[] = {
    {"ddlaunch tune train_bin --epochs=1000", "until its data ends"},
    {"ddlaunch tune --max-micro-batch-size=64 --check-loss train.py", "at most 64"},
};

std::string FlagLine(const FlagSpec& flag) {
  constexpr std::size_t kTextColumn = 38;
  std::string line =
      flag.short_name == 0 ? "      " : absl::StrCat("  -", std::string(1, flag.short_name), ", ");
  absl::StrAppend(&line, "--", std::string(flag.name), flag.takes_value() ? "=" : "",
                  std::string(flag.value_name));
  line.resize(std::max(kTextColumn, line.size() + 1), ' ');
  absl::StrAppend(&line, std::string(flag.help));
  if (!flag.default_text.empty()) {
    absl::StrAppend(&line, " [", std::string(flag.default_text), "]");
  }
  return line + "\n";
}

// "--a --b --c": for the flags that deserve no line of their own.
std::string NamesOf(FlagGroup group, Command command) {
  constexpr std::size_t kWidth = 86;
  std::string text;
  std::string line = " ";
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.group != group || !flag.BelongsTo(command)) {
      continue;
    }
    if (line.size() + flag.name.size() + 3 > kWidth) {
      absl::StrAppend(&text, line, "\n");
      line = " ";
    }
    absl::StrAppend(&line, " --", std::string(flag.name));
  }
  return absl::StrCat(text, line, "\n");
}

std::string ExampleLines(Command command) {
  constexpr std::size_t kRemarkColumn = 76;
  std::string text;
  for (const Example& example : Examples(command)) {
    std::string line = absl::StrCat("  ", std::string(example.line));
    line.resize(std::max(kRemarkColumn, line.size() + 2), ' ');
    absl::StrAppend(&text, line, std::string(example.remark), "\n");
  }
  return text;
}

// Paragraphs, one below the other.
std::string WithoutEmptyLines(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != '\n' || !result.ends_with('\n')) {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string_view TitleOf(FlagGroup group) {
  switch (group) {
    case FlagGroup::kJob:
      return "The job";
    case FlagGroup::kMeeting:
      return "Meeting the other nodes";
    case FlagGroup::kProgram:
      return "The program";
    case FlagGroup::kSupervision:
      return "Failure and stop";
    case FlagGroup::kOutput:
      return "Output";
    case FlagGroup::kPlan:
      return "The plan: global = micro x accumulation x world; the third number follows";
    case FlagGroup::kRate:
      return "Learning rate and schedule (ddlaunch plan --help explains them)";
    case FlagGroup::kTune:
      return "Trials";
    case FlagGroup::kOther:
      return "Other";
    case FlagGroup::kIgnored:
      return "Taken, without effect here";
    case FlagGroup::kRefused:
      return "torchrun's, refused with the way to do it here";
  }
  return "";
}

std::string_view Purpose(Command command) {
  switch (command) {
    case Command::kLaunch:
      return kPurpose;
    case Command::kCoordinator:
      return kCoordinatorPurpose;
    case Command::kPlan:
      return kPlanPurpose;
    case Command::kTune:
      return kTunePurpose;
  }
  return "";
}

std::string_view Remarks(Command command) {
  switch (command) {
    case Command::kLaunch:
      return kRemarks;
    case Command::kCoordinator:
      return kCoordinatorRemarks;
    case Command::kPlan:
      return kPlanRemarks;
    case Command::kTune:
      return kTuneRemarks;
  }
  return "";
}

std::span<const Example> Examples(Command command) {
  switch (command) {
    case Command::kLaunch:
      return kExamples;
    case Command::kCoordinator:
      return kCoordinatorExamples;
    case Command::kPlan:
      return kPlanExamples;
    case Command::kTune:
      return kTuneExamples;
  }
  return {};
}

namespace {

std::string_view UsageOf(Command command) {
  switch (command) {
    case Command::kLaunch:
      return kUsage;
    case Command::kCoordinator:
      return kCoordinatorUsage;
    case Command::kPlan:
      return kPlanUsage;
    case Command::kTune:
      return kTuneUsage;
  }
  return "";
}

// Of groups that `command` has no lines for, only names.
bool IsByNameOnly(FlagGroup group, Command command) {
  switch (group) {
    case FlagGroup::kIgnored:
    case FlagGroup::kRefused:
      return true;
    case FlagGroup::kRate:
      return command == Command::kLaunch || command == Command::kTune;
    case FlagGroup::kPlan:
    case FlagGroup::kTune:
    case FlagGroup::kOther:
      return false;
    default:
      return command == Command::kTune;
  }
}

}  // namespace

std::string HelpText(Command command) {
  const bool is_coordinator = command == Command::kCoordinator;
  std::string text(UsageOf(command));
  absl::StrAppend(&text, std::string(Purpose(command)), "Examples:\n", ExampleLines(command));
  const FlagSpec* previous = nullptr;
  for (const FlagSpec& flag : AllFlags()) {
    if (!flag.BelongsTo(command)) {
      continue;
    }
    const bool new_group = previous == nullptr || previous->group != flag.group;
    if (new_group && (!is_coordinator || previous == nullptr)) {
      absl::StrAppend(&text, is_coordinator ? "Flags" : std::string(TitleOf(flag.group)), ":\n");
    }
    if (!IsByNameOnly(flag.group, command)) {
      absl::StrAppend(&text, FlagLine(flag));
    } else if (new_group) {
      absl::StrAppend(&text, NamesOf(flag.group, command));
    }
    previous = &flag;
  }
  return absl::StrCat(text, "\n", WithoutEmptyLines(Remarks(command)));
}

std::string UsageText() {
  return absl::StrCat("no program given\n", std::string(kUsage), ExampleLines(Command::kLaunch),
                      "ddlaunch --help says more");
}

std::string VersionText() {
  return "ddlaunch " DDL_VERSION "\n";
}

}  // namespace ddl::cli
