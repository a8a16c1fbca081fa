// Python's traceback ends with the message, so it is then given alone.
#include "launcher/worker/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "agent/base/limits.h"
#include "agent/base/unique_fd.h"
#include "launcher/worker/text.h"

namespace ddl {
namespace {

using nlohmann::json;

// A traceback of any length a person reads; beyond it the file is not JSON of
// ours.
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20U;

// Text at `key`, or empty. `find` does not throw where operator[] might.
std::string TextAt(const json& object, const char* key) {
  if (!object.is_object()) {
    return {};
  }
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

json ObjectAt(const json& object, const char* key) {
  if (!object.is_object()) {
    return {};
  }
  const auto it = object.find(key);
  return it != object.end() ? *it : json();
}

}  // namespace

std::string ParseErrorFile(const std::string& content) {
  const json root = json::parse(content, nullptr, /*allow_exceptions=*/false);
  const json message = ObjectAt(root, "message");
  std::string text = message.is_string() ? message.get<std::string>() : TextAt(message, "message");
  const std::string stack = TextAt(ObjectAt(message, "extraInfo"), "py_callstack");
  if (!stack.empty()) {
    text = stack.find(text) != std::string::npos ? stack : text + "\n" + stack;
  }
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return CleanText(text, limits::kMaxErrorTextBytes);
}

std::string ReadErrorFile(const std::string& path) {
  // Non-blocking: a worker may have put a FIFO there.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<std::size_t>(info.st_size) > kMaxFileBytes) {
    return {};
  }
  std::string content(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(fd.get(), content.data() + done, content.size() - done);
    if (n <= 0) {
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  content.resize(done);
  return ParseErrorFile(content);
}

}  // namespace ddl
