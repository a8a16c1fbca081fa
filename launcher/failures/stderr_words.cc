// One pass over the lines each.
#include "launcher/failures/stderr_words.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/failures/text.h"

namespace ddl {
namespace {

constexpr std::size_t kShownLines = 20;
constexpr std::size_t kShownFrames = 4;
constexpr std::string_view kPython = "Traceback (most recent call last)";
constexpr std::array<std::string_view, 2> kNative = {
    "terminate called after throwing", "libc++abi: terminating due to uncaught exception"};

template <std::size_t N>
bool StartsWithOneOf(std::string_view line, const std::array<std::string_view, N>& starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [line](std::string_view start) { return line.starts_with(start); });
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsIndented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

// PyTorch (2.2 and later) puts "[rank3]: " before each line of an exception.
std::string_view WithoutRank(std::string_view line) {
  constexpr std::string_view kStart = "[rank";
  if (!line.starts_with(kStart)) {
    return line;
  }
  std::size_t at = kStart.size();
  while (at < line.size() && IsDigit(line[at])) {
    ++at;
  }
  constexpr std::string_view kEnd = "]: ";
  return at > kStart.size() && line.substr(at).starts_with(kEnd) ? line.substr(at + kEnd.size())
                                                                 : line;
}

// "frame #3: ..." of libtorch, "#3 ..." of its later releases, "    @  0x7f..." of glog.
bool IsFrame(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line.starts_with("frame #") || line.starts_with("@ ") ||
         (line.size() > 1 && line[0] == '#' && IsDigit(line[1]));
}

// Of each run of frames the first, and how many more there are.
std::vector<std::string> WithFewFrames(const std::vector<std::string_view>& lines) {
  std::vector<std::string> kept;
  std::size_t frames = 0;
  const auto end_run = [&] {
    if (frames > kShownFrames) {
      kept.push_back("frame #...: " + std::to_string(frames - kShownFrames) + " more");
    }
    frames = 0;
  };
  for (const std::string_view line : lines) {
    if (!IsFrame(line)) {
      end_run();
      kept.emplace_back(line);
    } else if (++frames <= kShownFrames) {
      kept.emplace_back(line);
    }
  }
  end_run();
  return kept;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text.append(text.empty() ? "" : "\n").append(line);
  }
  return text;
}

// "ValueError: bad", "torch.cuda.OutOfMemoryError: ...", "AssertionError"; a mere
// "Error: ..." is any program's.
bool NamesException(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(':'));
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return c == '.' || c == '_' || IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  const std::string_view last = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  constexpr std::string_view kError = "Error";
  constexpr std::string_view kException = "Exception";
  return is_name && !last.empty() && last.front() >= 'A' && last.front() <= 'Z' &&
         ((last.ends_with(kError) && last != kError) ||
          (last.ends_with(kException) && last != kException));
}

bool IsRaisedByStop(std::string_view line) {
  constexpr std::array<std::string_view, 3> kNames = {"KeyboardInterrupt", "SystemExit",
                                                      "SignalException"};
  const std::string_view name = line.substr(0, line.find(':'));
  return std::any_of(kNames.begin(), kNames.end(),
                     [name](std::string_view stop) { return name.ends_with(stop); });
}

// The head of the exception that reaches into the lines from `shown` on: where it
// starts, and how many lines say what it is. Of C++'s that is its what(); of a Python
// traceback the line above, too, which may say that it was caught and logged; of an
// exception with a long message (XLA's lists its buffers) its first line.
std::optional<std::pair<std::size_t, std::size_t>> HeadAbove(const std::vector<std::string>& lines,
                                                             std::size_t shown) {
  bool only_indented = true;
  for (std::size_t i = shown; i-- > 0;) {
    if (StartsWithOneOf(lines[i], kNative)) {
      return std::pair(i, std::size_t{2});
    }
    if (only_indented && lines[i].starts_with(kPython)) {
      return i == 0 ? std::pair(i, std::size_t{1}) : std::pair(i - 1, std::size_t{2});
    }
    if (only_indented && NamesException(lines[i])) {
      return std::pair(i, std::size_t{1});
    }
    only_indented = only_indented && IsIndented(lines[i]);
  }
  return std::nullopt;
}

}  // namespace

std::string LastWords(std::string_view tail) {
  const std::string text = LastLines(tail, std::numeric_limits<std::size_t>::max());
  std::vector<std::string_view> plain = LinesOf(text);
  std::transform(plain.begin(), plain.end(), plain.begin(), WithoutRank);
  std::vector<std::string> lines = WithFewFrames(plain);
  if (lines.size() <= kShownLines) {
    return Joined(lines);
  }
  std::size_t shown = lines.size() - kShownLines;
  std::vector<std::string> words;
  if (const auto head = HeadAbove(lines, shown); head.has_value()) {
    const auto [start, count] = *head;
    shown = std::max(start + count, shown + count + 1);  // a line for the note, too
    words.assign(lines.begin() + static_cast<std::ptrdiff_t>(start),
                 lines.begin() + static_cast<std::ptrdiff_t>(start + count));
    words.push_back("  (" + std::to_string(shown - start - count) + " lines left out)");
  }
  words.insert(words.end(), lines.begin() + static_cast<std::ptrdiff_t>(shown), lines.end());
  return Joined(words);
}

bool IsStackNote(std::string_view line) {
  constexpr std::array<std::string_view, 6> kStarts = {
      "Exception raised from ",      "C++ CapturedTraceback:", "*** Check failure stack trace",
      "CUDA kernel errors might be", "For debugging consider", "Compile with `TORCH_USE_CUDA_DSA`"};
  return IsFrame(line) || StartsWithOneOf(line, kStarts);
}

std::string_view FinalException(std::string_view text) {
  constexpr std::array<std::string_view, 2> kEndsNothing = {"Exception ignored in",
                                                            "Exception in thread"};
  std::size_t start = std::string_view::npos;
  bool in_traceback = false;
  bool counts = true;     // the traceback's
  bool is_cause = false;  // of what comes next: that one was raised from it
  std::string_view above;
  for (const std::string_view line : LinesOf(text)) {
    const auto at = static_cast<std::size_t>(line.data() - text.data());
    if (line.starts_with(kPython)) {
      in_traceback = true;
      counts = !StartsWithOneOf(above, kEndsNothing);
    } else if (line.starts_with("The above exception was the direct cause")) {
      is_cause = start != std::string_view::npos;
    } else if (StartsWithOneOf(line, kNative)) {
      // What ends right above it is what the program ended for; this is how.
      const bool follows = start != std::string_view::npos &&
                           text.substr(start, at - start) == std::string(above) + "\n";
      start = follows ? start : at;
      in_traceback = false;
    } else if (in_traceback ? !IsIndented(line) : NamesException(line)) {
      in_traceback = false;
      if (std::exchange(counts, true) && !IsRaisedByStop(line)) {
        start = std::exchange(is_cause, false) ? start : at;
      }
    }
    above = line;
  }
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

}  // namespace ddl
