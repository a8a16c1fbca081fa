// --help, made from the table of flags.
#include "launcher/cli/help.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "launcher/cli/flags.h"

namespace ddl::cli {
namespace {

constexpr std::string_view kIntro =
    R"(Usage: ddlaunch [FLAG ...] [--] PROGRAM [ARG ...]
Starts workers of PROGRAM on this node, meets the job's other nodes, gives every
worker its rank and the training plan, watches them, restarts them on failure.
NAME.py runs by python3 -u; every other executable runs as it is.
)";

constexpr std::string_view kOutro = R"(
Each flag may be written with _ for -, be shortened while that is unambiguous, and
takes its default from PET_NAME (PET_NPROC_PER_NODE=4). What follows PROGRAM is its own.
Exit status: the failed worker's own, or 128 + signal; 2 usage, 126 / 127 no such program.

Examples:
  ddlaunch --nproc_per_node=4 train_bin
  ddlaunch --nproc_per_node=gpu train.py --epochs 3
  ddlaunch --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host0:29400 --rdzv-id=j \
           --nproc_per_node=4 train_bin                   (the same on each node)
  ddlaunch --nproc_per_node=4 --global-batch-size=256 --max-micro-batch-size=32 train_bin
)";

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
    case FlagGroup::kOther:
      return "Other";
    case FlagGroup::kIgnored:
      return "Taken, without effect here";
    case FlagGroup::kNotYet:
      return "torchrun's, not in this version";
  }
  return "";
}

std::string FlagLine(const FlagSpec& flag) {
  constexpr std::size_t kTextColumn = 36;
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
std::string NamesOf(FlagGroup group) {
  constexpr std::size_t kWidth = 86;
  std::string text;
  std::string line = " ";
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.group != group) {
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

}  // namespace

std::string HelpText() {
  std::string text(kIntro);
  const FlagSpec* previous = nullptr;
  for (const FlagSpec& flag : AllFlags()) {
    const bool new_group = previous == nullptr || previous->group != flag.group;
    if (new_group) {
      absl::StrAppend(&text, std::string(TitleOf(flag.group)), ":\n");
    }
    const bool by_name_only = flag.group == FlagGroup::kIgnored || flag.group == FlagGroup::kNotYet;
    if (!by_name_only) {
      absl::StrAppend(&text, FlagLine(flag));
    } else if (new_group) {
      absl::StrAppend(&text, NamesOf(flag.group));
    }
    previous = &flag;
  }
  return text.append(kOutro);
}

std::string VersionText() {
  return "ddlaunch " DDL_VERSION "\n";
}

}  // namespace ddl::cli
