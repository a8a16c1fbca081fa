// Mailbox<T>: from many threads to one that sleeps in poll(2) or epoll(7).
//
// Put never blocks. fd() is readable while something is inside. As with
// EventQueue, its length is bounded by its producers. Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_MAILBOX_H_
#define DDLAUNCH_AGENT_BASE_MAILBOX_H_

#include <sys/eventfd.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "agent/base/check.h"
#include "agent/base/unique_fd.h"

namespace ddl {

template <typename T>
class Mailbox {
 public:
  Mailbox() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { DDL_CHECK(fd_.valid()); }

  void Put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    if (items_.size() == 1) {
      const std::uint64_t one = 1;
      DDL_CHECK(::write(fd_.get(), &one, sizeof one) == sizeof one);
    }
  }

  // Everything inside, oldest first; empty when there is nothing.
  [[nodiscard]] std::vector<T> TakeAll() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    // EAGAIN when nothing is inside: that is no error.
    [[maybe_unused]] const ssize_t ignored = ::read(fd_.get(), &count, sizeof count);
    return std::exchange(items_, {});
  }

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::mutex mutex_;
  std::vector<T> items_;  // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_MAILBOX_H_
