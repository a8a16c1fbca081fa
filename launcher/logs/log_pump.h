// LogPump: reads the workers' output pipes in a thread of its own and hands it
// to log files (byte for byte) and to the console (line by line).
//
// Policy when the console is slow: a stream that also goes to a file loses
// console lines and says how many; a stream without a file is not read on, so
// its worker waits in write(2), as it would without us. No other stream, and
// nothing else in ddlaunch, waits for a console. A log file that cannot be
// written (disk full) is given up with one warning; the worker goes on. A file
// system that hangs stops the pump, and with it all output; so wait for nothing
// here without a limit.
//
// Thread safe.
#ifndef DDLAUNCH_LAUNCHER_LOGS_LOG_PUMP_H_
#define DDLAUNCH_LAUNCHER_LOGS_LOG_PUMP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"
#include "launcher/logs/filtered_lines.h"
#include "launcher/process/supervisor_protocol.h"

namespace ddl {

struct ConsoleOptions {
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::size_t buffer_bytes = std::size_t{8} << 20U;  // of each
};

struct StreamSpec {
  UniqueFd pipe;  // read end, non-blocking
  bool is_stderr = false;
  bool on_console = true;
  std::string prefix;
  bool raw = false;  // see LineStyle
  UniqueFd file;     // invalid: none
  std::string file_path;
  std::shared_ptr<FilteredFile> filtered;  // null: none
  std::string filtered_prefix;
};

// A worker's output up to its exit is read.
struct DrainedWorker {
  WorkerId worker = kEveryWorker;
  std::string stderr_tail;  // bytes, the last few kilobytes
  Instant stderr_at{};      // when the last of them came
  std::string error_text;   // from its error file; empty: none
  Instant error_at{};       // when that was written, and the file's own word for it
  std::optional<std::int64_t> error_timestamp_s;
};

class LogPump {
 public:
  // `notify_fd`, an eventfd, is written when TakeDrained has something.
  LogPump(const ConsoleOptions& console, int notify_fd);
  // Waits a second for the thread; one that hangs in a log file's write(2) is
  // left alone, and ends with the process.
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  void Add(WorkerId worker, std::vector<StreamSpec> streams);
  // The worker has exited: reads what is in its pipes now, and `error_file`
  // unless that is empty. Whoever else holds a pipe open may go on writing, and
  // is waited for by nobody.
  void Drain(WorkerId worker, std::string error_file);
  [[nodiscard]] std::vector<DrainedWorker> TakeDrained();
  // Nobody is left who could write: reads the rest and closes every stream.
  void CloseAll();
  // Whole lines of ddlaunch's own, as they are, on the console's stderr.
  void Print(std::string lines);
  // Waits until the console has all that was written so far; false: it took
  // longer than `timeout`.
  bool Flush(Duration timeout);

 private:
  class Thread;
  const std::shared_ptr<Thread> thread_;  // the other owner: its thread
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_LOG_PUMP_H_
