// LineAssembler: from the bytes of one worker's stream to pieces on a console.
// Not thread safe (the log pump's).
//
// - A line is shown whole, with the stream's prefix.
// - Progress ("50%\r" or "\r50%") is shown live, but only so often: a burst of
//   updates shows its last state. At the newline the final state is a line.
// - A line above kMaxLineBytes is shown in parts; memory stays bounded.
// - On a terminal a short unfinished line (a prompt) is shown after a silence.
// - A stream that also goes to a file loses console lines when the console is
//   slow, and says how many; one without a file is not read on meanwhile (see
//   LogPump), so nothing of it is lost.
#ifndef DDLAUNCH_LAUNCHER_LOGS_LINE_ASSEMBLER_H_
#define DDLAUNCH_LAUNCHER_LOGS_LINE_ASSEMBLER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/clock.h"
#include "launcher/logs/console.h"

namespace ddl {

struct LineStyle {
  std::uint32_t source = 1;  // not 0, and no other stream's
  std::string prefix;
  // The only worker of its job: bytes go through as they come.
  bool raw = false;
  // Where all of it can be read when lines had to be dropped; empty: none may.
  std::string file;
};

class LineAssembler {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 10U;

  // `console` must outlive this.
  LineAssembler(Console* console, LineStyle style) : console_(console), style_(std::move(style)) {}

  void Append(std::string_view bytes, Instant now);
  // The stream ended, or its worker: an unfinished line is finished.
  void Finish();

  // The file is no longer written: from now on no line may be dropped.
  void LoseFile();

  // When OnTime is to be called, if at all: something waits to be shown.
  [[nodiscard]] std::optional<Instant> deadline() const;
  void OnTime(Instant now);

 private:
  static constexpr Duration kTerminalInterval = std::chrono::milliseconds(100);
  static constexpr Duration kPipeInterval = std::chrono::milliseconds(500);
  static constexpr Duration kSilence = std::chrono::milliseconds(200);
  // How long a '\r' may wait for the '\n' that makes it a line's end.
  static constexpr Duration kCarriageReturnWait = std::chrono::milliseconds(50);
  static constexpr std::size_t kMaxPreviewBytes = 120;

  void AppendRaw(std::string_view bytes);
  void EndLine();
  void EndProgress(Instant now);
  void ShowProgress(Instant now);
  void FlushPart();
  [[nodiscard]] bool WantsPreview() const;
  void Put(PieceKind kind, std::string_view text, bool continues);
  void TellDropped(bool force);

  Console* console_;
  LineStyle style_;
  std::string segment_;                 // since the last '\n' or '\r'
  std::string overwritten_;             // what the last '\r' went back over
  std::string shown_;                   // the last progress or preview that was shown
  bool after_return_ = false;           // segment_ follows a '\r'
  bool return_pending_ = false;         // a '\r' came, and nothing yet after it
  bool in_long_line_ = false;           // parts of it were shown
  bool progress_held_ = false;          // overwritten_ is to be shown when it is time
  std::optional<Instant> progress_at_;  // the last time that one was shown
  Instant last_bytes_at_{};
  std::int64_t dropped_lines_ = 0;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_LINE_ASSEMBLER_H_
