// The layout follows torch/distributed/elastic/multiprocessing/errors, which
// people (and their scripts) know how to read.
#include "launcher/worker/failure_report.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string_view>

namespace ddl {
namespace {

constexpr std::size_t kWidth = 60;
constexpr int kSignalBase = 128;
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

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

// What usually is behind it, for signals whose cause is not in the program's
// own output.
std::string_view Hint(int signal) {
  switch (signal) {
    case SIGKILL:
      return "Was it the out-of-memory killer? Look at `dmesg` and the container's memory limit.";
    case SIGBUS:
      return "Often a full /dev/shm: look at `df -h /dev/shm`; containers need --shm-size or "
             "--ipc=host.";
    case SIGSEGV:
      return "A crash in native code: `ulimit -c unlimited` keeps a core file; Python shows the "
             "stack with PYTHONFAULTHANDLER=1.";
    case SIGABRT:
      return "The program ended itself: a failed assertion or an uncaught C++ exception, see its "
             "last lines.";
    default:
      return {};
  }
}

void AppendIndented(std::string_view text, std::string_view indent, std::string& out) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out.append(indent).append(text.substr(0, end)).push_back('\n');
    text.remove_prefix(std::min(end + 1, text.size()));
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
    if (const std::string_view hint = Hint(failure.term_signal); !hint.empty()) {
      AppendField("hint", hint, out);
    }
  }
  if (failure.error_text.empty()) {
    if (failure.term_signal == 0) {
      AppendField("traceback", "none; the worker wrote nothing to stderr", out);
    }
    return;
  }
  const bool from_stderr = failure.error_file.empty();
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

int ExitCode(const std::optional<core::WorkerFailure>& root_cause) {
  if (!root_cause.has_value()) {
    return 0;
  }
  return root_cause->term_signal != 0 ? kSignalBase + root_cause->term_signal
                                      : root_cause->exit_code;
}

int ExitCode(const absl::Status& start_error) {
  switch (start_error.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kPermissionDenied:
      return kNotExecutable;
    default:
      return 1;
  }
}

std::string SignalName(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

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
