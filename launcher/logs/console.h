// Console: what stands on one terminal, pipe or file that many streams print
// to, so that each of its lines belongs to one of them. Not thread safe (the
// log pump's); the writer below it is.
#ifndef DDLAUNCH_LAUNCHER_LOGS_CONSOLE_H_
#define DDLAUNCH_LAUNCHER_LOGS_CONSOLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/logs/console_writer.h"

namespace ddl {

enum class PieceKind : std::uint8_t {
  kLine,      // whole; ended here by a newline
  kProgress,  // ended by a carriage return: the next piece overwrites it
  kPreview,   // a line's beginning, shown early on a terminal and then again
  kPart,      // of a line too long to hold; the rest follows
  kRaw,       // as it is
};

struct Piece {
  std::uint32_t source = 0;  // which stream; 0: ddlaunch itself
  PieceKind kind = PieceKind::kLine;
  std::string_view prefix;  // before what starts a console line
  std::string_view text;
  bool continues = false;  // the line of an earlier kPart
};

class Console {
 public:
  // `fd` and `on_change` as for ConsoleWriter.
  Console(int fd, std::size_t capacity_bytes, std::function<void()> on_change);

  // False: no room; nothing was taken. `force` as for ConsoleWriter.
  [[nodiscard]] bool Put(const Piece& piece, bool force);
  // Whole lines of ddlaunch's own, as they are; and one with its mark.
  void Print(std::string_view lines);
  void Notice(std::string_view text);

  [[nodiscard]] bool is_terminal() const { return is_terminal_; }
  ConsoleWriter& writer() { return writer_; }

 private:
  // How the console's last line was left.
  enum class Open : std::uint8_t { kNo, kTransient, kUnfinished };
  void StartPiece(const Piece& piece, std::string& out) const;

  ConsoleWriter writer_;
  bool is_terminal_;
  Open open_ = Open::kNo;
  std::uint32_t open_source_ = 0;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_CONSOLE_H_
