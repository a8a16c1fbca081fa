// Small helpers for text that comes from workers. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_TEXT_H_
#define DDLAUNCH_LAUNCHER_FAILURES_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/clock.h"

namespace ddl {

// Valid UTF-8 (what is not becomes '?') of at most `max_bytes`, cut between
// characters; of a longer text the end is kept, for that is where the error is.
std::string CleanText(std::string_view text, std::size_t max_bytes);

// The last `count` lines, without the last line's newline. Of a line that was
// overwritten with carriage returns, what stands at the end.
std::string LastLines(std::string_view text, std::size_t count);

// Its lines, without their newlines. They point into `text`.
std::vector<std::string_view> LinesOf(std::string_view text);

// The end of a stream: keeps at least the last `max_bytes`, at most twice that.
class Tail {
 public:
  explicit Tail(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  void Append(std::string_view bytes, Instant now) {
    last_at_ = now;
    if (bytes.size() >= max_bytes_) {
      text_.assign(bytes.substr(bytes.size() - max_bytes_));
      return;
    }
    if (text_.size() + bytes.size() > 2 * max_bytes_) {
      text_.erase(0, text_.size() - max_bytes_);
    }
    text_.append(bytes);
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  // When the last of it came.
  [[nodiscard]] Instant last_at() const { return last_at_; }

 private:
  std::size_t max_bytes_;
  std::string text_;
  Instant last_at_{};
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_TEXT_H_
