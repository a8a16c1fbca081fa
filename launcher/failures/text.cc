// UTF-8 by the table of the Unicode standard (3-7): no overlong forms, no
// surrogates, nothing above U+10FFFF.
#include "launcher/failures/text.h"

#include <algorithm>

namespace ddl {
namespace {

bool IsContinuation(unsigned char byte) {
  return (byte & 0xC0U) == 0x80U;
}

// The length of the well-formed character at the start of `text`; 0: none.
std::size_t CharacterLength(std::string_view text) {
  const auto at = [text](std::size_t i) -> unsigned char {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned char first = at(0);
  if (first < 0x80U) {
    return 1;
  }
  const std::size_t length = first >= 0xF0U ? 4 : first >= 0xE0U ? 3 : 2;
  unsigned char low = 0x80U;
  unsigned char high = 0xBFU;
  switch (first) {
    case 0xE0U:
      low = 0xA0U;
      break;
    case 0xEDU:
      high = 0x9FU;
      break;
    case 0xF0U:
      low = 0x90U;
      break;
    case 0xF4U:
      high = 0x8FU;
      break;
    default:
      break;
  }
  if (first < 0xC2U || first > 0xF4U || at(1) < low || at(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < length; ++i) {
    if (!IsContinuation(at(i))) {
      return 0;
    }
  }
  return length;
}

}  // namespace

std::string CleanText(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    text.remove_prefix(text.size() - max_bytes);
    while (!text.empty() && IsContinuation(static_cast<unsigned char>(text.front()))) {
      text.remove_prefix(1);
    }
  }
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = CharacterLength(text);
    if (length == 0 || text.front() == '\0') {
      clean.push_back('?');
    } else {
      clean.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

std::string LastLines(std::string_view text, std::size_t count) {
  if (!text.empty() && text.back() == '\n') {
    text.remove_suffix(1);
  }
  std::vector<std::string_view> lines;  // last first
  while (lines.size() < count) {
    const std::size_t newline = text.rfind('\n');
    std::string_view line = newline == std::string_view::npos ? text : text.substr(newline + 1);
    while (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    line.remove_prefix(line.rfind('\r') == std::string_view::npos ? 0 : line.rfind('\r') + 1);
    lines.push_back(line);
    if (newline == std::string_view::npos) {
      break;
    }
    text = text.substr(0, newline);
  }
  std::reverse(lines.begin(), lines.end());
  std::string joined;
  for (const std::string_view line : lines) {
    joined.append(line).push_back('\n');
  }
  if (!joined.empty()) {
    joined.pop_back();
  }
  return joined;
}

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    lines.push_back(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

}  // namespace ddl
