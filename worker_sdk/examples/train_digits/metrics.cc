// Writes metrics, and trims them when training resumes.
#include "worker_sdk/examples/train_digits/metrics.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace ddl::digits {
namespace {

constexpr std::string_view kStepHead = "{\"step\": ";

// The shortest decimal that reads back as the same double.
std::string RoundTrip(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

// The length of the leading lines whose step is at most `last`.
std::uintmax_t LengthUpTo(const std::string& path, std::int64_t last) {
  std::ifstream in(path);
  std::uintmax_t length = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    std::int64_t step = 0;
    if (line.compare(0, kStepHead.size(), kStepHead) != 0 ||
        std::from_chars(line.data() + kStepHead.size(), line.data() + line.size(), step).ec !=
            std::errc() ||
        step > last) {
      break;
    }
    length += line.size() + 1;
  }
  return length;
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path, std::int64_t resumed_step) {
  MetricsFile metrics;
  metrics.path_ = path;
  if (path.empty()) {
    return metrics;
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    std::filesystem::resize_file(path, LengthUpTo(path, resumed_step), error);
  }
  metrics.file_.reset(std::fopen(path.c_str(), "ae"));
  if (metrics.file_ == nullptr) {
    return absl::ErrnoToStatus(errno, "cannot write the metrics file " + path);
  }
  return metrics;
}

absl::Status MetricsFile::Write(const StepMetrics& metrics) {
  return WriteLine(std::string(kStepHead) + std::to_string(metrics.step) +
                   ", \"epoch\": " + std::to_string(metrics.epoch) +
                   ", \"loss\": " + RoundTrip(metrics.loss) + ", \"lr\": " + RoundTrip(metrics.lr) +
                   ", \"samples\": " + std::to_string(metrics.samples) + "}\n");
}

absl::Status MetricsFile::Write(const FinalMetrics& metrics) {
  return WriteLine("{\"final\": true, \"accuracy\": " + RoundTrip(metrics.accuracy) +
                   ", \"steps\": " + std::to_string(metrics.steps) +
                   ", \"world\": " + std::to_string(metrics.world) +
                   ", \"restart_count\": " + std::to_string(metrics.restart_count) +
                   ", \"weights_l2\": " + RoundTrip(metrics.weights_l2) + "}\n");
}

absl::Status MetricsFile::WriteLine(const std::string& line) {
  if (file_ == nullptr) {
    return absl::OkStatus();
  }
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    return absl::ErrnoToStatus(errno, "cannot write the metrics file " + path_);
  }
  return absl::OkStatus();
}

}  // namespace ddl::digits
