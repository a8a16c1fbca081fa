// OutBuffer: the replies that a client has not taken yet. Small ones are put
// together; a large value is shared with the table, not copied. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_OUT_BUFFER_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_OUT_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/tcpstore/key_table.h"
#include "launcher/tcpstore/protocol.h"

namespace ddl::tcpstore {

class OutBuffer {
 public:
  // Where the parts of a reply go: see protocol.h. Counted by Close.
  std::string& tail() { return tail_; }
  // With its length before it.
  void AddValue(const Blob& value) {
    constexpr std::size_t kWorthSharing = 16 * kKib;
    if (value == nullptr || value->size() < kWorthSharing) {
      AppendText(value == nullptr ? std::string_view() : std::string_view(*value), tail_);
      return;
    }
    AppendInt64(static_cast<std::int64_t>(value->size()), tail_);
    shared_bytes_ += tail_.size() + value->size();
    shared_.push_back(std::make_shared<const std::string>(std::exchange(tail_, {})));
    shared_.push_back(value);
  }

  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t size() const { return shared_bytes_ + tail_.size() - taken_; }
  // What comes next, in one piece; not empty unless the buffer is.
  [[nodiscard]] std::string_view front() const {
    return std::string_view(shared_.empty() ? tail_ : *shared_.front()).substr(taken_);
  }
  // REQUIRES: count <= front().size().
  void Take(std::size_t count) {
    taken_ += count;
    if (shared_.empty()) {
      TrimTail();
    } else if (taken_ == shared_.front()->size()) {
      shared_bytes_ -= taken_;
      shared_.pop_front();
      taken_ = 0;
    }
  }

 private:
  // A client that is always a little behind never empties it: what was taken goes
  // once it is most of it, so that what is moved was paid for.
  void TrimTail() {
    constexpr std::size_t kWorthMoving = 64 * kKib;
    if (taken_ == tail_.size() || taken_ > std::max(kWorthMoving, tail_.size() / 2)) {
      tail_.erase(0, taken_);
      taken_ = 0;
    }
  }

  std::deque<Blob> shared_;  // before tail_
  std::size_t shared_bytes_ = 0;
  std::string tail_;
  std::size_t taken_ = 0;  // of the front
};

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_OUT_BUFFER_H_
