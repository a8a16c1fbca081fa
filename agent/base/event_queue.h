// EventQueue<T>: a bounded queue from many threads to the one that owns a state
// machine. Thread safe.
//
// The consumer sleeps in Pop with a deadline (its next timer). Producers never
// block: TryPush fails when the queue is full, and the producer holds its input
// back (a gRPC reactor starts no new read) until there is room.
#ifndef DDLAUNCH_AGENT_BASE_EVENT_QUEUE_H_
#define DDLAUNCH_AGENT_BASE_EVENT_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "agent/base/clock.h"

namespace ddl {

template <typename T>
class EventQueue {
 public:
  explicit EventQueue(std::size_t capacity) : capacity_(capacity) {}

  // False when full or closed; `event` is then left as it was.
  [[nodiscard]] bool TryPush(T&& event) {
    const std::lock_guard lock(mutex_);
    if (closed_ || events_.size() >= capacity_) {
      return false;
    }
    events_.push_back(std::move(event));
    not_empty_.notify_one();
    return true;
  }

  // Goes in whatever the length: for the few events that must not be lost
  // (a stream has ended), at most one for each thing that was let in.
  void PushUrgent(T event) {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      events_.push_back(std::move(event));
      not_empty_.notify_one();
    }
  }

  // The next event; nothing when `deadline` has passed or the queue was closed
  // and is empty.
  [[nodiscard]] std::optional<T> Pop(std::optional<Instant> deadline) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closed_ || !events_.empty(); };
    if (deadline.has_value()) {
      not_empty_.wait_until(lock, *deadline, ready);
    } else {
      not_empty_.wait(lock, ready);
    }
    if (events_.empty()) {
      return std::nullopt;
    }
    std::optional<T> event(std::move(events_.front()));
    events_.pop_front();
    return event;
  }

  // No event goes in from now on; those inside can still be popped.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    not_empty_.notify_all();
  }

  [[nodiscard]] bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<T> events_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_EVENT_QUEUE_H_
