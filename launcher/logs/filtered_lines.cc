// Whole lines are judged where they lie; only a line's beginning is copied.
#include "launcher/logs/filtered_lines.h"

#include <algorithm>

namespace ddl {

bool FilteredLines::Matches(std::string_view text) const {
  return std::any_of(filters_.begin(), filters_.end(), [text](const std::string& filter) {
    return text.find(filter) != std::string_view::npos;
  });
}

void FilteredLines::EndLine(std::string_view line, std::string& out) {
  if (shown_ || Matches(line)) {
    if (!shown_) {
      out.append(prefix_);
    }
    out.append(line).push_back('\n');
  }
  in_long_line_ = shown_ = false;
}

void FilteredLines::EndPart(std::string& out) {
  if (!shown_ && Matches(begun_)) {
    out.append(prefix_);
    shown_ = true;
  }
  if (shown_) {
    out.append(begun_);
  }
  in_long_line_ = true;
  begun_.clear();
}

void FilteredLines::Append(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end != std::string_view::npos && begun_.empty()) {
      EndLine(bytes.substr(0, end), out);
      bytes.remove_prefix(end + 1);
      continue;
    }
    const std::size_t room = kMaxLineBytes - begun_.size();
    const std::size_t take = std::min({end, room, bytes.size()});
    begun_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (take == end) {
      bytes.remove_prefix(1);
      EndLine(begun_, out);
      begun_.clear();
    } else if (begun_.size() == kMaxLineBytes) {
      EndPart(out);
    }
  }
}

void FilteredLines::Finish(std::string& out) {
  if (!begun_.empty() || in_long_line_) {
    EndLine(begun_, out);
    begun_.clear();
  }
}

}  // namespace ddl
