// Rewrites a line with no more than a carriage return and spaces, which every terminal
// knows: see progress.h.
#include "launcher/tune/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "agent/base/file_io.h"

namespace ddl::tune {
namespace {

std::size_t TerminalWidth() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

// The terminal is the shell's now, or another job's.
bool IsInBackground() {
  const pid_t foreground = ::tcgetpgrp(STDERR_FILENO);
  return foreground > 0 && foreground != ::getpgrp();
}

void Print(const std::string& text) {
  // A terminal that is gone takes nothing, and needs nothing.
  [[maybe_unused]] const int error = WriteAll(STDERR_FILENO, text);
}

}  // namespace

std::string ProgressText(const TrialProgress& progress) {
  constexpr std::size_t kLongest = 64;
  const std::string micro = absl::StrCat("micro-batch ", progress.micro_batch_size, ": ");
  std::array<char, kLongest> text{};
  if (progress.steps == 0) {
    std::snprintf(text.data(), text.size(), "no step yet, %.0f s of %.0f", progress.seconds,
                  progress.seconds_allowed);
    return micro + text.data();
  }
  const std::string steps =
      progress.steps < progress.steps_wanted
          ? absl::StrCat(progress.steps, " of ", progress.steps_wanted, " steps")
          : absl::StrCat(progress.steps, " steps");
  if (progress.samples_per_s > 0) {
    constexpr double kWhole = 1000;
    std::snprintf(text.data(), text.size(),
                  progress.samples_per_s >= kWhole ? ", %.0f samples/s" : ", %.3g samples/s",
                  progress.samples_per_s);
  }
  return absl::StrCat(micro, steps, text.data());
}

ProgressLine::ProgressLine(bool wanted) : shows_(wanted && ::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(std::string_view text) {
  if (!shows_ || IsInBackground()) {
    return;
  }
  std::string line = absl::StrCat("ddlaunch: ", std::string(text));
  // In the last column some terminals begin a new line.
  line.resize(std::min(line.size(), TerminalWidth() - 1));
  const std::size_t width = line.size();
  line.append(width_ > width ? width_ - width : 0, ' ');
  Print("\r" + line);
  width_ = width;
}

void ProgressLine::Clear() {
  if (width_ > 0) {
    Print("\r" + std::string(width_, ' ') + "\r");
    width_ = 0;
  }
}

}  // namespace ddl::tune
