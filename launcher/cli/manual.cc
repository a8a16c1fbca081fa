// Where each part of the page comes from: the flags' lines from the table, purpose,
// remarks and examples from help.h, the rest is here.
#include "launcher/cli/manual.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/help.h"

namespace ddl::cli {
namespace {

constexpr std::string_view kEnd = R"(.SH ENVIRONMENT
Each worker finds the variables of the launcher's own environment, and in place of
whatever they were there:
.TP
.B RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE
its place among all workers, and among those of its node
.TP
.B GROUP_RANK, NODE_RANK, GROUP_WORLD_SIZE
its node's place, and the number of nodes
.TP
.B ROLE_NAME, ROLE_RANK, ROLE_WORLD_SIZE
the role of
.B \-\-role
.TP
.B MASTER_ADDR, MASTER_PORT
where rank 0's node is to be found
.TP
.B TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_RUN_ID, \
TORCHELASTIC_USE_AGENT_STORE, TORCHELASTIC_ERROR_FILE
as from torchrun
.TP
.B OMP_NUM_THREADS
its share of the node's CPUs, unless it was set
.TP
.B DDL_GLOBAL_BATCH_SIZE, DDL_MICRO_BATCH_SIZE, DDL_GRAD_ACCUM_STEPS, DDL_RANK_BATCH_SIZE
the plan, if there is one; the last is this worker's own samples of an optimizer step
.TP
.B DDL_LEARNING_RATE, DDL_WARMUP_STEPS, DDL_WARMUP_SAMPLES, DDL_WARMUP_START_LR, \
DDL_TOTAL_STEPS, DDL_TOTAL_SAMPLES, DDL_LR_DECAY, DDL_LR_DECAY_SAMPLES, \
DDL_LR_DECAY_FACTOR, DDL_ADAM_BETA1, DDL_ADAM_BETA2, DDL_ADAM_EPS, DDL_PLAN_HASH
what follows from it, as far as it is known
.PP
ddlaunch itself reads
.BR PET_ NAME
for each flag,
.B DDL_RDZV_TOKEN
(the secret that admits nodes; workers do not get it),
.B PYTHON_EXEC
(the Python for scripts; else python3 of
.BR PATH )
and the variables named with the flags above.
.SH SIGNALS
.B SIGTERM, SIGINT, SIGHUP
and
.B SIGQUIT
stop the job (see
.BR \-\-signals\-to\-handle ):
the workers get SIGTERM, and SIGKILL after
.BR \-\-shutdown\-timeout ;
a second signal kills them at once.
A SIGHUP that was ignored at the start
.RB ( nohup (1))
stays ignored.
.B SIGUSR1
and
.B SIGUSR2
are passed on to the workers.
Whatever a worker started ends with the job, also when ddlaunch is killed.
.SH EXIT STATUS
.TP
.B 0
all workers succeeded
.TP
.B 2
the command line cannot be understood, or contradicts itself
.TP
.B 126, 127
the program cannot be executed, or is not there
.TP
.B 128 + N
the first worker that failed died of signal N, or ddlaunch was stopped by it
.TP
.I other
that of the first worker that failed; 1 where the failure is ddlaunch's own, such as
nodes that did not come
)";

// A text of ours as troff reads it.
std::string Escaped(std::string_view text) {
  // A line that begins with . or ' would be a request.
  std::string escaped = absl::StrReplaceAll(
      std::string(text), {{"\\", "\\e"}, {"-", "\\-"}, {"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

// Lines of text no longer than mandoc likes them; a request's line stays whole.
std::string Filled(const std::string& page) {
  constexpr std::size_t kWidth = 78;
  std::string filled;
  for (std::size_t at = 0; at < page.size();) {
    std::size_t end = std::min(page.find('\n', at), page.size());
    const bool is_request = page[at] == '.';
    if (!is_request && end - at > kWidth) {
      // No line may begin with a full stop: that would be a request.
      std::size_t space = page.rfind(' ', at + kWidth);
      while (space != std::string::npos && space > at && page[space + 1] == '.') {
        space = page.rfind(' ', space - 1);
      }
      end = space == std::string::npos || space <= at ? end : space;
    }
    absl::StrAppend(&filled, page.substr(at, end - at), "\n");
    at = end + 1;
  }
  return filled;
}

std::string FlagEntry(const FlagSpec& flag) {
  std::string text = ".TP\n";
  if (flag.short_name != 0) {
    absl::StrAppend(&text, "\\fB\\-", std::string(1, flag.short_name), "\\fR, ");
  }
  absl::StrAppend(&text, "\\fB\\-\\-", Escaped(flag.name), "\\fR");
  if (flag.takes_value()) {
    absl::StrAppend(&text, "=\\fI", Escaped(flag.value_name), "\\fR");
  }
  absl::StrAppend(&text, "\n", Escaped(flag.help), flag.help.empty() ? "Refused.\n" : ".\n");
  if (!flag.default_text.empty()) {
    absl::StrAppend(&text, "Default: ", Escaped(flag.default_text), ".\n");
  }
  if (!flag.other_variable.empty()) {
    absl::StrAppend(&text, "Also from ", std::string(flag.other_variable), ".\n");
  }
  return text;
}

// Those that the launch has too are described there.
std::string OwnFlagEntries(Command command) {
  std::string text;
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.BelongsTo(command) && !flag.BelongsTo(Command::kLaunch)) {
      absl::StrAppend(&text, FlagEntry(flag));
    }
  }
  return text;
}

std::string FlagEntries(Command command) {
  std::string text;
  const FlagSpec* previous = nullptr;
  for (const FlagSpec& flag : AllFlags()) {
    if (!flag.BelongsTo(command)) {
      continue;
    }
    if (command == Command::kLaunch && (previous == nullptr || previous->group != flag.group)) {
      absl::StrAppend(&text, ".SS ", Escaped(TitleOf(flag.group)), "\n");
    }
    absl::StrAppend(&text, FlagEntry(flag));
    previous = &flag;
  }
  return text;
}

// Each paragraph of the remarks, without the indentation that --help gives it.
std::string Paragraphs(std::string_view text) {
  return absl::StrCat(".PP\n",
                      absl::StrReplaceAll(Escaped(text), {{"\n\n", "\n.PP\n"}, {"\n  ", "\n"}}));
}

std::string ExampleEntries(Command command) {
  std::string text;
  for (const Example& example : Examples(command)) {
    absl::StrAppend(&text, ".TP\n.B ", Escaped(example.line), "\n", Escaped(example.remark), "\n");
  }
  return text;
}

}  // namespace

std::string ManualPage() {
  return Filled(absl::StrCat(
      ".TH DDLAUNCH 1 2026-11-30 \"ddlaunch " DDL_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\n"
      "ddlaunch \\- start, join and watch the workers of a data\\-parallel training job\n"
      ".SH SYNOPSIS\n"
      ".B ddlaunch\n.RI [ FLAG \" ...] [\" \\-\\- \"] \" PROGRAM \" [\" ARG \" ...]\"\n"
      ".br\n"
      ".B ddlaunch coordinator\n.RI [ FLAG \" ...]\"\n"
      ".br\n"
      ".B ddlaunch plan\n.RI [ FLAG \" ...]\"\n"
      ".br\n"
      ".B ddlaunch tune\n.RI [ FLAG \" ...] [\" \\-\\- \"] \" PROGRAM \" [\" ARG \" ...]\"\n"
      ".SH DESCRIPTION\n",
      Escaped(Purpose(Command::kLaunch)), Paragraphs(Remarks(Command::kLaunch)), ".SH OPTIONS\n",
      FlagEntries(Command::kLaunch), ".SH THE COORDINATOR\n",
      Escaped(Purpose(Command::kCoordinator)), FlagEntries(Command::kCoordinator),
      Paragraphs(Remarks(Command::kCoordinator)), ".SH THE PLAN BEFOREHAND\n",
      Escaped(Purpose(Command::kPlan)), OwnFlagEntries(Command::kPlan),
      Paragraphs(Remarks(Command::kPlan)), ".SH TUNING\n", Escaped(Purpose(Command::kTune)),
      OwnFlagEntries(Command::kTune), Paragraphs(Remarks(Command::kTune)), std::string(kEnd),
      ".SH EXAMPLES\n", ExampleEntries(Command::kLaunch), ExampleEntries(Command::kCoordinator),
      ExampleEntries(Command::kPlan), ExampleEntries(Command::kTune),
      ".SH SEE ALSO\n.BR mpirun (1),\n.BR nohup (1),\n.BR systemd.service (5)\n"));
}

}  // namespace ddl::cli
