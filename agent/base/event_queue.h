// EventQueue<T>: from many threads to the one that owns a state machine.
//
// Push never blocks, so a gRPC reactor may call it. The bound on the length is
// the producers' promise: each stream has at most one event in a queue and
// reads its next only after that one was handled. Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_EVENT_QUEUE_H_
#define DDLAUNCH_AGENT_BASE_EVENT_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "agent/base/clock.h"

namespace ddl {

template <typename T>
class EventQueue {
 public:
  // Dropped when the queue is closed.
  void Push(T event) {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      events_.push_back(std::move(event));
      changed_.notify_one();
    }
  }

  // The next event; nothing when `deadline` has passed, or the queue is closed
  // and empty.
  [[nodiscard]] std::optional<T> Pop(std::optional<Instant> deadline) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closed_ || !events_.empty(); };
    if (deadline.has_value()) {
      changed_.wait_until(lock, *deadline, ready);
    } else {
      changed_.wait(lock, ready);
    }
    if (events_.empty()) {
      return std::nullopt;
    }
    std::optional<T> event(std::move(events_.front()));
    events_.pop_front();
    return event;
  }

  // Nothing goes in from now on; what is inside can still be popped.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  [[nodiscard]] bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> events_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_EVENT_QUEUE_H_
