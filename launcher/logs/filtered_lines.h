// The lines of all ranks that contain one of a few texts, in one file more:
// filtered_stdout.log and filtered_stderr.log, as torchrun's
// --duplicate-stdout-filters and --duplicate-stderr-filters write them. Each line
// has its rank's prefix, whatever the console shows. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_LOGS_FILTERED_LINES_H_
#define DDLAUNCH_LAUNCHER_LOGS_FILTERED_LINES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"

namespace ddl {

// Shared by the streams that write to it.
struct FilteredFile {
  UniqueFd fd;  // invalid: it could not be written, and is given up
  std::string path;
  std::vector<std::string> filters;  // none is empty
};

// One stream's part in it.
class FilteredLines {
 public:
  // A longer line is judged and written in parts: once one of them matches, the
  // rest of the line follows.
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 10U;

  FilteredLines(std::vector<std::string> filters, std::string prefix)
      : filters_(std::move(filters)), prefix_(std::move(prefix)) {}

  // Appends to `out` the matching lines that `bytes` completes.
  void Append(std::string_view bytes, std::string& out);
  // The stream ended, or its worker: a last line may lack its newline.
  void Finish(std::string& out);

 private:
  void EndLine(std::string_view line, std::string& out);
  void EndPart(std::string& out);
  [[nodiscard]] bool Matches(std::string_view text) const;

  std::vector<std::string> filters_;
  std::string prefix_;
  std::string begun_;          // of a line whose newline has not come
  bool in_long_line_ = false;  // parts of it were judged
  bool shown_ = false;         // and written
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_FILTERED_LINES_H_
