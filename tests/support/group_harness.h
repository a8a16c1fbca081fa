// Drives a WorkerGroup in a test: consoles captured in memory, the event loop
// with a deadline, so that a broken group fails a test and does not hang it.
#ifndef DDLAUNCH_TESTS_SUPPORT_GROUP_HARNESS_H_
#define DDLAUNCH_TESTS_SUPPORT_GROUP_HARNESS_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"
#include "gtest/gtest.h"
#include "launcher/launch_config.h"
#include "launcher/process/supervisor.h"
#include "launcher/worker/worker_group.h"

namespace ddl::test {

inline constexpr Duration kPatience = std::chrono::seconds(60);

inline std::string ReadAll(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  std::string content(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t n = ::pread(fd, content.data(), content.size(), 0);
  content.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return content;
}

inline std::string ReadPath(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(fd.valid()) << path;
  return fd.valid() ? ReadAll(fd.get()) : "";
}

// A directory that is removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddl_test_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A FIFO that workers open for writing and pass on to all they start: its end
// says that every one of them is gone.
class LifeLine {
 public:
  LifeLine() : path_(directory_ / "life") {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    fd_.reset(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Waits for `count` bytes: one from each process that lives now.
  [[nodiscard]] bool AwaitBytes(std::size_t count, Duration timeout = kPatience) {
    return Await(timeout, [this, count] { return received_.size() >= count; });
  }
  [[nodiscard]] bool AwaitEnd(Duration timeout) {
    return Await(timeout, [this] { return ended_; });
  }
  // All that came so far.
  [[nodiscard]] const std::string& received() const { return received_; }

 private:
  template <typename Done>
  bool Await(Duration timeout, Done done) {
    const Instant deadline = MonotonicNow() + timeout;
    while (!done()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - MonotonicNow()).count();
      pollfd readable{fd_.get(), POLLIN, 0};
      if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) <= 0) {
        return false;
      }
      std::array<char, 256> bytes{};
      const ssize_t n = ::read(fd_.get(), bytes.data(), bytes.size());
      if (n > 0) {
        received_.append(bytes.data(), static_cast<std::size_t>(n));
      } else if (n == 0) {
        // Nobody has it open: the end, or, for who waits for bytes, a pause
        // between two rounds, of whose end poll(2) does not tell.
        ended_ = true;
        if (done()) {
          return true;
        }
        ::poll(nullptr, 0, 1);
      }
    }
    return true;
  }

  TemporaryDirectory directory_;
  std::string path_;
  UniqueFd fd_;
  std::string received_;
  bool ended_ = false;
};

inline LaunchConfig ShellConfig(const std::string& script, std::int32_t nproc,
                                std::vector<std::string> arguments = {}) {
  LaunchConfig config;
  config.argv = {"/bin/sh", "-c", script, "sh"};
  config.argv.insert(config.argv.end(), arguments.begin(), arguments.end());
  config.program_name = "script";
  config.nproc = nproc;
  config.shutdown_timeout = std::chrono::seconds(30);
  return config;
}

inline RoundInfo SingleNodeRound(std::int32_t nproc, std::int64_t number = 1) {
  RoundInfo round;
  round.round = number;
  round.nproc = nproc;
  round.world_size = nproc;
  round.master_addr = "127.0.0.1";
  round.master_port = 29500;
  round.gateway = "unix:/nowhere";
  round.job_id = "test";
  return round;
}

class GroupHarness {
 public:
  explicit GroupHarness(LaunchConfig config, ConsoleOptions console = {},
                        const GroupTimeouts& timeouts = {})
      : config_(config) {
    out_.reset(::memfd_create("stdout", MFD_CLOEXEC));
    err_.reset(::memfd_create("stderr", MFD_CLOEXEC));
    if (console.stdout_fd == 1) {
      console.stdout_fd = out_.get();
    }
    if (console.stderr_fd == 2) {
      console.stderr_fd = err_.get();
    }
    auto supervisor = Supervisor::Fork();
    EXPECT_TRUE(supervisor.ok()) << supervisor.status();
    supervisor_pid_ = (*supervisor)->pid();
    group_ = std::make_unique<WorkerGroup>(config_, *std::move(supervisor), console, timeouts);
  }

  absl::Status Start(std::int64_t round = 1) {
    return group_->Start(SingleNodeRound(config_.nproc, round));
  }

  // Handles events until `done` says so; false when it took too long.
  bool RunUntil(const std::function<bool()>& done, Duration timeout = kPatience) {
    const Instant limit = MonotonicNow() + timeout;
    while (!done()) {
      const Instant until = std::min(group_->deadline().value_or(limit), limit);
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - MonotonicNow()).count();
      pollfd readable{group_->poll_fd(), POLLIN, 0};
      ::poll(&readable, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
      auto exits = group_->OnReady(MonotonicNow());
      if (!exits.ok()) {
        error_ = exits.status();
        return done();
      }
      exits_.insert(exits_.end(), exits->begin(), exits->end());
      if (MonotonicNow() >= limit) {
        return done();
      }
    }
    return true;
  }
  bool RunUntilIdle(Duration timeout = kPatience) {
    const bool idle = RunUntil([this] { return group_->idle(); }, timeout);
    EXPECT_TRUE(!idle || group_->FlushConsole(kPatience));
    return idle;
  }

  [[nodiscard]] const WorkerExit& exit_of(std::int32_t local_rank) const {
    const auto it = std::find_if(exits_.begin(), exits_.end(), [local_rank](const auto& exit) {
      return exit.local_rank == local_rank;
    });
    static const WorkerExit none;
    EXPECT_NE(it, exits_.end()) << "no exit of local rank " << local_rank;
    return it == exits_.end() ? none : *it;
  }

  WorkerGroup& group() { return *group_; }
  std::vector<WorkerExit>& exits() { return exits_; }
  [[nodiscard]] const absl::Status& error() const { return error_; }
  [[nodiscard]] std::string out() const { return ReadAll(out_.get()); }
  [[nodiscard]] std::string err() const { return ReadAll(err_.get()); }
  [[nodiscard]] pid_t supervisor_pid() const { return supervisor_pid_; }

 private:
  LaunchConfig config_;
  UniqueFd out_;
  UniqueFd err_;
  pid_t supervisor_pid_ = -1;
  std::unique_ptr<WorkerGroup> group_;
  std::vector<WorkerExit> exits_;
  absl::Status error_;
};

// The lines of `text`, without their newlines.
inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace ddl::test

#endif  // DDLAUNCH_TESTS_SUPPORT_GROUP_HARNESS_H_
