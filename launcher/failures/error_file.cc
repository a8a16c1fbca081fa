// Python's traceback ends with the message, so it is then given alone.
#include "launcher/failures/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "agent/base/file_io.h"
#include "agent/base/limits.h"
#include "agent/base/unique_fd.h"
#include "launcher/failures/bounded_json.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

using nlohmann::json;

// A traceback of any length a person reads; beyond it the file is not JSON of
// ours.
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20U;

// Empty: it is no text.
std::string TextOf(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// A number, or one as text, as torch writes it.
std::optional<std::int64_t> SecondsOf(const json* value) {
  if (value != nullptr && value->is_number_integer()) {
    return value->get<std::int64_t>();
  }
  const std::string text = TextOf(value);
  std::int64_t seconds = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return seconds;
}

// Its content, and when it was changed last; nothing for what is no file, or too
// large.
std::optional<std::pair<std::string, WallTime>> ReadFile(const std::string& path) {
  // Non-blocking: a worker may have put a FIFO there.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<std::size_t>(info.st_size) > kMaxFileBytes) {
    return std::nullopt;
  }
  const auto modified =
      std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec);
  return std::pair(ReadUpTo(fd.get(), kMaxFileBytes),
                   WallTime(std::chrono::duration_cast<WallTime::duration>(modified)));
}

}  // namespace

ErrorFile ParseErrorFile(const std::string& content) {
  const json root = ParseBoundedJson(content);
  const json* const message = MemberOf(&root, "message");
  const json* const extra = MemberOf(message, "extraInfo");
  const bool is_plain = message != nullptr && message->is_string();
  std::string text = TextOf(is_plain ? message : MemberOf(message, "message"));
  const std::string stack = TextOf(MemberOf(extra, "py_callstack"));
  if (!stack.empty()) {
    text = stack.find(text) != std::string::npos ? stack : text + "\n" + stack;
  }
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  ErrorFile file;
  file.text = CleanText(text, limits::kMaxErrorTextBytes);
  file.timestamp_s =
      SecondsOf(is_plain ? MemberOf(&root, "timestamp") : MemberOf(extra, "timestamp"));
  return file;
}

WallTime WrittenAt(std::optional<std::int64_t> timestamp_s, WallTime modified_at) {
  // Other values are no time: the sum must not overflow.
  constexpr std::int64_t kLatest = std::int64_t{1} << 33U;  // the year 2242
  if (!timestamp_s.has_value() || *timestamp_s <= 0 || *timestamp_s > kLatest) {
    return modified_at;
  }
  // torch makes the text, timestamp and all, just before it writes the file.
  constexpr auto kWriting = std::chrono::seconds(1);
  const WallTime second{std::chrono::seconds(*timestamp_s)};
  const WallTime next = second + std::chrono::seconds(1);
  return modified_at >= second && modified_at < next + kWriting
             ? modified_at
             : next - std::chrono::milliseconds(1);
}

ErrorFile ReadErrorFile(const std::string& path) {
  const auto read = ReadFile(path);
  if (!read.has_value()) {
    return {};
  }
  ErrorFile file = ParseErrorFile(read->first);
  if (!file.text.empty()) {
    file.written_at = WrittenAt(file.timestamp_s, read->second);
  }
  return file;
}

std::string RawErrorFile(const std::string& path) {
  auto read = ReadFile(path);
  return read.has_value() ? std::move(read->first) : "";
}

}  // namespace ddl
