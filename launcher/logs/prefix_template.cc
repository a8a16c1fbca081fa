// One pass from left to right, so that a value is never looked at again.
#include "launcher/logs/prefix_template.h"

#include <optional>

namespace ddl {
namespace {

// What stands at a '$'.
struct Place {
  std::string_view whole;  // "${rank}"
  std::string_view name;   // "rank"; "$": a dollar; empty: nothing that is meant
};

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

Place PlaceAt(std::string_view text) {
  if (text.substr(0, 2) == "$$") {
    return {text.substr(0, 2), text.substr(1, 1)};
  }
  const bool braces = text.substr(0, 2) == "${";
  const std::size_t begin = braces ? 2 : 1;
  std::size_t end = begin;
  while (end < text.size() && IsNameByte(text[end])) {
    ++end;
  }
  const std::string_view name = text.substr(begin, end - begin);
  if (!braces) {
    return {text.substr(0, end), name};
  }
  if (name.empty() || end == text.size() || text[end] != '}') {
    return {text.substr(0, 1), {}};
  }
  return {text.substr(0, end + 1), name};
}

std::optional<std::string> ValueOf(std::string_view name, const PrefixValues& values) {
  if (name == "role_name") {
    return values.role_name;
  }
  if (name == "local_rank") {
    return std::to_string(values.local_rank);
  }
  if (name == "rank") {
    return std::to_string(values.rank);
  }
  if (name == "hostname") {
    return values.hostname;
  }
  if (name == "$") {
    return "$";
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckPrefixTemplate(std::string_view text) {
  if (text.find_first_of("\r\n") != std::string_view::npos) {
    return absl::InvalidArgumentError("must be one line");
  }
  for (std::size_t at = text.find('$'); at != std::string_view::npos;) {
    const Place place = PlaceAt(text.substr(at));
    if (!place.name.empty() && !ValueOf(place.name, {}).has_value()) {
      return absl::InvalidArgumentError(
          "knows ${role_name}, ${local_rank}, ${rank} and ${hostname}, but not " +
          std::string(place.whole));
    }
    at = text.find('$', at + place.whole.size());
  }
  return absl::OkStatus();
}

std::string FillPrefixTemplate(std::string_view text, const PrefixValues& values) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t at = text.find('$');
    filled.append(text.substr(0, at));
    if (at == std::string_view::npos) {
      break;
    }
    const Place place = PlaceAt(text.substr(at));
    filled.append(ValueOf(place.name, values).value_or(std::string(place.whole)));
    text.remove_prefix(at + place.whole.size());
  }
  return filled;
}

}  // namespace ddl
