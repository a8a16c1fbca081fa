// A small state machine over '\n' and '\r'; see the header for what is shown.
#include "launcher/logs/line_assembler.h"

#include <algorithm>
#include <utility>

namespace ddl {
namespace {

std::size_t FindLineEnd(std::string_view bytes) {
  // Two passes of memchr beat one of find_first_of; the second is short.
  const std::size_t newline = bytes.find('\n');
  const std::size_t carriage_return = bytes.substr(0, newline).find('\r');
  return carriage_return != std::string_view::npos ? carriage_return : newline;
}

}  // namespace

void LineAssembler::Append(std::string_view bytes, Instant now) {
  last_bytes_at_ = now;
  if (style_.raw) {
    AppendRaw(bytes);
    return;
  }
  while (!bytes.empty()) {
    if (return_pending_) {
      return_pending_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        EndLine();
        continue;
      }
      EndProgress(now);
    }
    // Inside a long line a '\r' is a byte like others.
    const std::size_t end = in_long_line_ ? bytes.find('\n') : FindLineEnd(bytes);
    const std::size_t room = kMaxLineBytes - segment_.size();
    const std::size_t take = std::min({end, room, bytes.size()});
    segment_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (take != end) {
      if (segment_.size() == kMaxLineBytes) {
        FlushPart();
      }
      continue;
    }
    const char ended_by = bytes.front();
    bytes.remove_prefix(1);
    if (ended_by == '\n') {
      EndLine();
    } else {
      return_pending_ = true;
    }
  }
}

void LineAssembler::AppendRaw(std::string_view bytes) {
  if (!bytes.empty()) {
    Put(PieceKind::kRaw, bytes, /*continues=*/false);
  }
}

void LineAssembler::EndLine() {
  // "100%\r" and then "\n": the line is what the '\r' left standing.
  const bool left_standing = segment_.empty() && !in_long_line_;
  Put(PieceKind::kLine, left_standing ? overwritten_ : segment_, in_long_line_);
  segment_.clear();
  overwritten_.clear();
  shown_.clear();
  after_return_ = false;
  in_long_line_ = false;
  progress_held_ = false;
}

void LineAssembler::EndProgress(Instant now) {
  after_return_ = true;
  if (segment_.empty()) {
    return;
  }
  overwritten_ = std::move(segment_);
  segment_.clear();
  progress_held_ = overwritten_ != shown_;
  ShowProgress(now);
}

void LineAssembler::ShowProgress(Instant now) {
  const Duration interval = console_->is_terminal() ? kTerminalInterval : kPipeInterval;
  if (progress_held_ && (!progress_at_.has_value() || now - *progress_at_ >= interval)) {
    Put(PieceKind::kProgress, overwritten_, /*continues=*/false);
    shown_ = overwritten_;
    progress_at_ = now;
    progress_held_ = false;
  }
}

void LineAssembler::FlushPart() {
  Put(PieceKind::kPart, segment_, in_long_line_);
  segment_.clear();
  in_long_line_ = true;
}

void LineAssembler::Finish() {
  if (!segment_.empty() || !overwritten_.empty() || in_long_line_) {
    EndLine();
  }
  return_pending_ = false;
  TellDropped(/*force=*/true);
}

bool LineAssembler::WantsPreview() const {
  return !segment_.empty() && !in_long_line_ && segment_.size() <= kMaxPreviewBytes &&
         segment_ != shown_ && (after_return_ || console_->is_terminal());
}

std::optional<Instant> LineAssembler::deadline() const {
  if (return_pending_) {
    return last_bytes_at_ + kCarriageReturnWait;
  }
  if (WantsPreview()) {
    return last_bytes_at_ + kSilence;
  }
  if (progress_held_) {
    return *progress_at_ + (console_->is_terminal() ? kTerminalInterval : kPipeInterval);
  }
  return std::nullopt;
}

void LineAssembler::OnTime(Instant now) {
  if (return_pending_ && now >= last_bytes_at_ + kCarriageReturnWait) {
    return_pending_ = false;
    EndProgress(now);
  }
  ShowProgress(now);
  if (WantsPreview() && now >= last_bytes_at_ + kSilence) {
    Put(after_return_ ? PieceKind::kProgress : PieceKind::kPreview, segment_,
        /*continues=*/false);
    shown_ = segment_;
    progress_held_ = false;
  }
}

void LineAssembler::Put(PieceKind kind, std::string_view text, bool continues) {
  const bool may_drop = !style_.file.empty();
  if (dropped_lines_ > 0) {
    TellDropped(/*force=*/false);
  }
  const Piece piece{style_.source, kind, style_.prefix, text, continues};
  if (dropped_lines_ == 0 && console_->Put(piece, /*force=*/!may_drop)) {
    return;
  }
  const auto newlines = std::count(text.begin(), text.end(), '\n');
  dropped_lines_ += kind == PieceKind::kLine ? 1 : newlines;
}

void LineAssembler::LoseFile() {
  TellDropped(/*force=*/true);
  style_.file.clear();
}

// Not with the first byte of room: one notice is to tell of many lines.
void LineAssembler::TellDropped(bool force) {
  if (dropped_lines_ == 0 || (!force && !console_->writer().HalfEmpty())) {
    return;
  }
  console_->Notice("the console is too slow: " + std::to_string(dropped_lines_) + " lines of " +
                   style_.prefix + " are not shown here; all of them are in " + style_.file);
  dropped_lines_ = 0;
}

}  // namespace ddl
