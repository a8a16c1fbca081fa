// UniqueFd: owns one file descriptor and closes it. Not thread safe.
#ifndef DDLAUNCH_AGENT_BASE_UNIQUE_FD_H_
#define DDLAUNCH_AGENT_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace ddl {

class UniqueFd {
 public:
  UniqueFd() = default;
  // Takes ownership; -1 is "none".
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // Gives the descriptor away.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_UNIQUE_FD_H_
