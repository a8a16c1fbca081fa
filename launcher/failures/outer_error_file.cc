// In the form that torch/distributed/elastic/multiprocessing/errors reads and
// writes.
#include "launcher/failures/outer_error_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"
#include "agent/base/signal_name.h"
#include "agent/base/unique_fd.h"
#include "launcher/failures/bounded_json.h"
#include "launcher/failures/error_file.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

using nlohmann::json;

constexpr mode_t kFileMode = 0666;

// Everything in it is text; a worker's bytes may be any, so nothing throws.
std::string Written(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

json MessageOf(const std::string& message, const std::string& stack, std::int64_t wall_time_s) {
  return {{"message", message},
          {"extraInfo", {{"py_callstack", stack}, {"timestamp", std::to_string(wall_time_s)}}}};
}

// What to call a failure without an error file.
std::string MessageFor(const core::WorkerFailure& cause) {
  if (cause.term_signal != 0) {
    return "Signal " + std::to_string(cause.term_signal) + " (" + SignalName(cause.term_signal) +
           ") received by PID " + std::to_string(cause.pid);
  }
  const std::size_t end = cause.error_text.find_last_not_of(" \r\n");
  return end == std::string::npos ? "exited with code " + std::to_string(cause.exit_code)
                                  : LastLines(cause.error_text.substr(0, end + 1), 1);
}

}  // namespace

std::string OuterErrorFile(const core::WorkerFailure& cause, const std::string& worker_file) {
  const int code = cause.term_signal != 0 ? -cause.term_signal : cause.exit_code;
  json passed_up = ParseBoundedJson(worker_file.empty() ? "" : RawErrorFile(worker_file));
  if (passed_up.is_object() && passed_up.contains("message")) {
    json& message = passed_up["message"];
    if (message.is_object()) {
      message["errorCode"] = code;
    }
    if (message.is_object() || message.is_string()) {
      return Written(passed_up);
    }
  }
  json root;
  root["message"] = MessageOf(MessageFor(cause), cause.error_text, cause.wall_time_s);
  root["message"]["errorCode"] = code;
  return Written(root);
}

std::string OuterErrorFile(const std::string& text, int error_code, std::int64_t wall_time_s) {
  const std::string message = !text.empty() ? text
                              : error_code < 0
                                  ? "stopped by " + SignalName(-error_code)
                                  : "failed with exit code " + std::to_string(error_code);
  json root;
  root["message"] = MessageOf(message, message, wall_time_s);
  root["message"]["errorCode"] = error_code;
  return Written(root);
}

std::string OuterErrorPath() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the environment is set by nobody
  const char* const path = std::getenv("TORCHELASTIC_ERROR_FILE");
  return path != nullptr ? path : "";
}

absl::Status WriteOuterErrorFile(const std::string& path, const std::string& content) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, kFileMode));
  const int error = fd.valid() ? WriteAll(fd.get(), content) : errno;
  return error == 0
             ? absl::OkStatus()
             : absl::UnavailableError(ErrnoText(
                   "cannot write the error file " + path + " (TORCHELASTIC_ERROR_FILE)", error));
}

}  // namespace ddl
