// The layout follows torch/distributed/elastic/multiprocessing/errors, which
// people (and their scripts) know how to read.
#include "launcher/failures/failure_report.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>

#include "agent/base/signal_name.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

constexpr std::size_t kWidth = 60;

std::string TimeText(std::int64_t wall_time_s) {
  const auto seconds = static_cast<std::time_t>(wall_time_s);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d_%H:%M:%S UTC", &parts) == 0) {
    return std::to_string(wall_time_s);
  }
  return text.data();
}

void AppendIndented(std::string_view text, std::string_view indent, std::string& out) {
  for (const std::string_view line : LinesOf(text)) {
    out.append(indent).append(line).push_back('\n');
  }
}

void AppendField(std::string_view name, std::string_view value, std::string& out) {
  constexpr std::size_t kNameWidth = 10;
  out.append("  ").append(name);
  out.append(kNameWidth - std::min(kNameWidth, name.size()), ' ');
  out.append(": ").append(value).push_back('\n');
}

void AppendReason(const core::WorkerFailure& failure, std::string& out) {
  if (failure.term_signal != 0) {
    AppendField("traceback",
                "Signal " + std::to_string(failure.term_signal) + " (" +
                    SignalName(failure.term_signal) + ") received by PID " +
                    std::to_string(failure.pid),
                out);
  }
  if (!failure.hint.empty()) {
    AppendField("hint", failure.hint, out);
  }
  if (failure.error_text.empty()) {
    if (failure.term_signal == 0) {
      AppendField("traceback", "none; the worker wrote nothing to stderr", out);
    }
    return;
  }
  // Not every error file is kept, and named.
  const bool from_stderr =
      failure.error_file.empty() && !failure.error_text.starts_with("Traceback (");
  out.append(failure.term_signal != 0 ? "  last lines :\n"
             : from_stderr            ? "  traceback : last lines of stderr\n"
                                      : "  traceback :\n");
  AppendIndented(failure.error_text, "    ", out);
}

void AppendFailure(std::size_t index, const core::WorkerFailure& failure, bool with_reason,
                   std::string& out) {
  out.append("[").append(std::to_string(index)).append("]:\n");
  AppendField("time", TimeText(failure.wall_time_s), out);
  AppendField("host", failure.host, out);
  AppendField(
      "rank",
      std::to_string(failure.rank) + " (local_rank: " + std::to_string(failure.local_rank) + ")",
      out);
  const int code = failure.term_signal != 0 ? -failure.term_signal : failure.exit_code;
  AppendField("exitcode", std::to_string(code) + " (pid: " + std::to_string(failure.pid) + ")",
              out);
  AppendField("error_file", failure.error_file.empty() ? "<N/A>" : failure.error_file, out);
  if (with_reason) {
    AppendReason(failure, out);
  } else if (failure.term_signal != 0) {
    AppendField("traceback",
                "Signal " + std::to_string(failure.term_signal) + " (" +
                    SignalName(failure.term_signal) + ")",
                out);
  }
}

bool SameWorker(const core::WorkerFailure& a, const core::WorkerFailure& b) {
  return a.rank == b.rank && a.host == b.host && a.pid == b.pid;
}

}  // namespace

std::string FormatFailureReport(const FailureReport& report) {
  std::vector<core::WorkerFailure> others;
  std::copy_if(report.others.begin(), report.others.end(), std::back_inserter(others),
               [&](const auto& other) { return !SameWorker(other, report.root_cause); });

  std::string out(kWidth, '=');
  out.append("\n").append(report.program).append(" FAILED\n");
  out.append(kWidth, '-').append("\nFailures:\n");
  if (others.empty()) {
    out.append("  <NO_OTHER_FAILURES>\n");
  }
  const std::size_t listed = std::min(others.size(), kMaxListedFailures);
  for (std::size_t i = 0; i < listed; ++i) {
    AppendFailure(i + 1, others[i], /*with_reason=*/false, out);
  }
  if (listed < others.size()) {
    out.append("  ... and ").append(std::to_string(others.size() - listed));
    out.append(" more; ").append(std::to_string(others.size() + 1));
    out.append(" workers failed in all\n");
  }
  out.append(kWidth, '-').append("\nRoot Cause (first observed failure):\n");
  AppendFailure(0, report.root_cause, /*with_reason=*/true, out);
  out.append(kWidth, '=').append("\n");
  return out;
}

}  // namespace ddl
