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
--rdzv-conf, in seconds: join_timeout=600; last_call_timeout=5, from MIN nodes on, for more;
  heartbeat_timeout=5, the silence that loses a node (or keep_alive_interval x
  keep_alive_max_attempt); close_timeout=5, for the others' goodbyes. And is_host=0 or 1:
  whether this node serves the meeting.
"ddlaunch coordinator --listen ADDR" serves the meetings of many jobs and outlives them; see its
  --help. (A program that is called coordinator is run as ./coordinator.)
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

constexpr std::string_view kCoordinatorIntro =
    R"(Usage: ddlaunch coordinator [FLAG ...]
Serves the meetings of many jobs until it is stopped. Their nodes come to it by
--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT, each job by an --rdzv-id of its own.
)";

constexpr std::string_view kCoordinatorOutro = R"(
--rdzv-conf: heartbeat_timeout=5, the seconds of silence that lose a node, or
  keep_alive_interval x keep_alive_max_attempt. A job's nodes give the other keys.
SIGTERM or SIGINT ends it with status 0; jobs that run then look for it for a while.

Examples:
  ddlaunch coordinator --listen 10.0.0.1:29400 --rdzv-token-file=/etc/ddlaunch/token
  ddlaunch coordinator --listen 127.0.0.1:0                   (a free port; it is printed)
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
    case FlagGroup::kRefused:
      return "torchrun's, refused with the way to do it here";
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

std::string HelpText(Command command) {
  const bool is_coordinator = command == Command::kCoordinator;
  std::string text(is_coordinator ? kCoordinatorIntro : kIntro);
  const FlagSpec* previous = nullptr;
  for (const FlagSpec& flag : AllFlags()) {
    if (!flag.BelongsTo(command)) {
      continue;
    }
    const bool new_group = previous == nullptr || previous->group != flag.group;
    if (new_group && !is_coordinator) {
      absl::StrAppend(&text, std::string(TitleOf(flag.group)), ":\n");
    }
    const bool by_name_only =
        flag.group == FlagGroup::kIgnored || flag.group == FlagGroup::kRefused;
    if (!by_name_only) {
      absl::StrAppend(&text, FlagLine(flag));
    } else if (new_group) {
      absl::StrAppend(&text, NamesOf(flag.group));
    }
    previous = &flag;
  }
  return text.append(is_coordinator ? kCoordinatorOutro : kOutro);
}

std::string VersionText() {
  return "ddlaunch " DDL_VERSION "\n";
}

}  // namespace ddl::cli
