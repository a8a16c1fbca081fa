// LogStreams: the workers' output pipes, and where each one's bytes go: its log
// file (byte for byte), the file of filtered lines, the console (line by line),
// and the tail that a failure report quotes. What is done when a console or a
// file does not take them is said in log_pump.h.
//
// Not thread safe (the log pump's thread), but for WaitUntilWritten.
#ifndef DDLAUNCH_LAUNCHER_LOGS_LOG_STREAMS_H_
#define DDLAUNCH_LAUNCHER_LOGS_LOG_STREAMS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"
#include "launcher/failures/text.h"
#include "launcher/logs/console.h"
#include "launcher/logs/filtered_lines.h"
#include "launcher/logs/line_assembler.h"
#include "launcher/logs/log_pump.h"
#include "launcher/process/supervisor_protocol.h"

namespace ddl {

class LogStreams {
 public:
  // `wake_fd`, an eventfd, ends Wait(); it must outlive this. `on_change`: see
  // ConsoleWriter; it should write to `wake_fd`.
  LogStreams(const ConsoleOptions& options, int wake_fd, const std::function<void()>& on_change);

  void Add(WorkerId worker, std::vector<StreamSpec> specs);
  // Reads what is in the worker's pipes now; its streams stay, for others may
  // hold them open. Returns the end of its stderr, once.
  DrainedWorker Drain(WorkerId worker);
  // The same for all workers, without the tails.
  void ReadAll();
  // Reads the rest and closes every stream.
  void CloseAll();
  // Whole lines of ddlaunch's own.
  void Print(std::string_view lines);

  // Waits for something to do, and does it.
  void Wait();

  // False: `deadline` passed before the consoles had all that they were given.
  // Thread safe.
  [[nodiscard]] bool WaitUntilWritten(Instant deadline);

 private:
  enum class ReadResult : std::uint8_t { kData, kNothing, kEnd };
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10U;

  struct Stream {
    StreamSpec spec;
    std::optional<LineAssembler> lines;  // none: not on the console
    std::optional<FilteredLines> filter;
    Console* console = nullptr;
    std::shared_ptr<Tail> tail;  // stderr only; shared with tails_
  };

  void OnReadable(std::uint32_t id);
  ReadResult ReadOnce(Stream& stream, std::size_t max_bytes);
  void ReadWhatIsThere(Stream& stream);
  void WriteFile(Stream& stream, std::string_view bytes);
  void WriteFiltered(Stream& stream);  // and empties matching_
  void FinishLines(Stream& stream);
  void TellDisk(const std::string& path, int error);
  void Close(std::uint32_t id);
  void Watch(std::uint32_t id, int fd);
  void ResumeStreams();
  void TellBrokenConsoles();
  void ShowWhatIsDue();
  [[nodiscard]] int TimeoutMs() const;
  Console& console(bool is_stderr) { return is_stderr && err_ ? *err_ : *out_; }

  const int wake_fd_;
  UniqueFd epoll_;
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> err_;  // null: the same file as out_
  std::map<std::uint32_t, Stream> streams_;
  std::set<std::uint32_t> waiting_;                  // for their console
  std::map<WorkerId, std::shared_ptr<Tail>> tails_;  // stderr's, until drained
  std::array<char, kChunkBytes> buffer_{};
  std::string matching_;  // lines for a filtered file
  bool told_disk_ = false;
  bool told_out_ = false;
  bool told_err_ = false;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_LOG_STREAMS_H_
