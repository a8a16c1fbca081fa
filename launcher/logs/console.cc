// On a terminal a transient piece (progress, preview) is erased and overwritten
// by whatever comes next. Elsewhere only its own stream overwrites it; another
// stream's piece starts a new line, for there the bytes stay.
#include "launcher/logs/console.h"

#include <unistd.h>

#include <utility>

namespace ddl {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr std::string_view kContinuedMark = "(continued) ";

}  // namespace

Console::Console(int fd, std::size_t capacity_bytes, std::function<void()> on_change)
    : writer_(fd, capacity_bytes, std::move(on_change)), is_terminal_(::isatty(fd) == 1) {}

void Console::StartPiece(const Piece& piece, std::string& out) const {
  const bool own = open_source_ == piece.source;
  if (piece.continues && own && open_ == Open::kUnfinished) {
    return;  // goes on where it was
  }
  if (open_ == Open::kTransient && is_terminal_) {
    out.append(kEraseLine);
  } else if (open_ == Open::kUnfinished || (open_ == Open::kTransient && !own)) {
    out.push_back('\n');
  }
  out.append(piece.prefix);
  if (piece.continues) {
    out.append(kContinuedMark);
  }
}

bool Console::Put(const Piece& piece, bool force) {
  std::string out;
  if (piece.kind != PieceKind::kRaw) {
    StartPiece(piece, out);
  }
  out.append(piece.text);
  Open left = Open::kNo;
  switch (piece.kind) {
    case PieceKind::kLine:
      out.push_back('\n');
      break;
    case PieceKind::kProgress:
      out.push_back('\r');
      left = Open::kTransient;
      break;
    case PieceKind::kPreview:
      left = Open::kTransient;
      break;
    case PieceKind::kPart:
      left = Open::kUnfinished;
      break;
    case PieceKind::kRaw:
      if (piece.text.empty()) {
        return true;
      }
      left = piece.text.back() == '\n' ? Open::kNo : Open::kUnfinished;
      break;
  }
  if (!writer_.Write(out, force)) {
    return false;
  }
  open_ = left;
  open_source_ = piece.source;
  return true;
}

void Console::Notice(std::string_view text) {
  Print("ddlaunch: " + std::string(text));
}

void Console::Print(std::string_view lines) {
  Piece piece;
  piece.text = lines.substr(0, lines.find_last_not_of('\n') + 1);
  [[maybe_unused]] const bool taken = Put(piece, /*force=*/true);
}

}  // namespace ddl
