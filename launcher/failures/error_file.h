// A worker's error file: what torch.distributed.elastic's @record (or anybody)
// writes to TORCHELASTIC_ERROR_FILE when the training function raises. Thread
// safe.
//   {"message": {"message": "Type: text",
//                "extraInfo": {"py_callstack": "...", "timestamp": "<epoch s>"}}}
//   {"message": "text", "timestamp": <epoch s>}
#ifndef DDLAUNCH_LAUNCHER_FAILURES_ERROR_FILE_H_
#define DDLAUNCH_LAUNCHER_FAILURES_ERROR_FILE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddl {

using WallTime = std::chrono::system_clock::time_point;

struct ErrorFile {
  // The message, and the Python traceback if there is one; valid UTF-8 of a
  // bounded length. Empty: there is no such file, or nothing to be made of it; a
  // worker writes what it likes, so that is no error.
  std::string text;
  std::optional<std::int64_t> timestamp_s;  // as the worker wrote it
  // When it was written, by this host's wall clock.
  std::optional<WallTime> written_at;
};

ErrorFile ReadErrorFile(const std::string& path);

// The same for the file's content, but for written_at.
ErrorFile ParseErrorFile(const std::string& content);

// The timestamp has whole seconds, the file's own time has more, but is that of a
// file server's clock where the file lies on one: it counts where the two agree,
// else the end of the timestamp's second.
WallTime WrittenAt(std::optional<std::int64_t> timestamp_s, WallTime modified_at);

// The content as it is; empty: there is no such file, or it is too large.
std::string RawErrorFile(const std::string& path);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_ERROR_FILE_H_
