// Lines of the step log: see step_log.h.
#include "worker_sdk/src/step_log.h"

#include <fcntl.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"

namespace ddl::internal {
namespace {

constexpr char kVariable[] = "DDL_STEP_LOG";
constexpr int kFileMode = 0666;
// Asking the kernel costs more than the rest of a line, and a small model takes
// thousands of steps a second.
constexpr std::int64_t kStepsAskedEach = 16;
constexpr auto kPeakInterval = std::chrono::milliseconds(20);

// Of one model: the lines of two would not be told apart.
std::atomic<bool>& Taken() {
  static std::atomic<bool> taken = false;
  return taken;
}

void Warn(const std::string& text) {
  std::fprintf(stderr, "ddl: %s; there are no lines of steps from here on\n", text.c_str());
}

}  // namespace

std::int64_t PeakResidentBytes() {
  constexpr std::size_t kMaxStatusBytes = 16384;
  constexpr std::int64_t kKiB = 1024;
  constexpr std::string_view kKey = "VmHWM:";
  const std::optional<std::string> status = ReadFileUpTo("/proc/self/status", kMaxStatusBytes);
  const std::size_t at = status.has_value() ? status->find(kKey) : std::string::npos;
  if (at == std::string::npos) {
    return 0;
  }
  const std::size_t digits = status->find_first_not_of(" \t", at + kKey.size());
  std::int64_t kib = 0;
  if (digits != std::string::npos) {
    std::from_chars(status->data() + digits, status->data() + status->size(), kib);
  }
  return kib * kKiB;
}

std::shared_ptr<StepLog> StepLog::FromEnvironment(int rank, MemoryProbe probe) {
  const char* const path = std::getenv(kVariable);
  if (rank != 0 || path == nullptr || *path == '\0' || Taken().exchange(true)) {
    return nullptr;
  }
  UniqueFd fd(::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, kFileMode));
  if (!fd.valid()) {
    Warn(ErrnoText(std::string("cannot open the step log ") + path, errno));
    Taken() = false;
    return nullptr;
  }
  return std::shared_ptr<StepLog>(new StepLog(path, std::move(fd), std::move(probe)));
}

StepLog::StepLog(std::string path, UniqueFd fd, MemoryProbe probe)
    : path_(std::move(path)), fd_(std::move(fd)), probe_(std::move(probe)) {}

StepLog::~StepLog() {
  Taken() = false;
}

std::int64_t StepLog::PeakBytes(Clock::time_point now) {
  if (step_ <= kStepsAskedEach || now - peak_at_ >= kPeakInterval) {
    peak_bytes_ = probe_ ? probe_() : PeakResidentBytes();
    peak_at_ = now;
  }
  return peak_bytes_;
}

void StepLog::Add(double samples, double mean_loss) {
  if (!fd_.valid()) {
    return;
  }
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_step_).count();
  ++step_;
  constexpr std::size_t kLongestLine = 160;
  std::array<char, kLongestLine> line{};
  const int length = std::snprintf(line.data(), line.size(), "%lld,%.17g,%.9f,%.9g,%lld\n",
                                   static_cast<long long>(step_), samples, seconds, mean_loss,
                                   static_cast<long long>(PeakBytes(now)));
  const int error =
      WriteAll(fd_.get(), std::string_view(line.data(), static_cast<std::size_t>(length)));
  if (error != 0) {
    Warn(ErrnoText("cannot write to the step log " + path_, error));
    fd_.reset();
  }
  last_step_ = now;
}

}  // namespace ddl::internal
