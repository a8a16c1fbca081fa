// The thread is detached and owns its state with us: a thread inside write(2)
// to a paused reader can be neither joined nor stopped, and must not keep
// ddlaunch from ending.
#include "launcher/logs/console_writer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "agent/base/thread_signals.h"

namespace ddl {
namespace {

constexpr std::size_t kFileChunkBytes = std::size_t{64} << 10U;

// What the descriptor takes in one write that another writer's cannot split.
std::size_t ChunkBytes(int fd) {
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  return regular ? kFileChunkBytes : PIPE_BUF;
}

// The part of `bytes` for one write: whole lines if one fits.
std::string_view NextChunk(std::string_view bytes, std::size_t max_bytes) {
  if (bytes.size() <= max_bytes) {
    return bytes;
  }
  const std::size_t newline = bytes.rfind('\n', max_bytes - 1);
  return bytes.substr(0, newline == std::string_view::npos ? max_bytes : newline + 1);
}

}  // namespace

struct ConsoleWriter::Shared {
  Shared(int descriptor, std::size_t capacity, std::function<void()> changed)
      : fd(descriptor), capacity_bytes(capacity), on_change(std::move(changed)) {}

  const int fd;
  const std::size_t capacity_bytes;
  const std::function<void()> on_change;

  mutable std::mutex mutex;
  std::condition_variable work;     // for the thread
  std::condition_variable written;  // for WaitUntilWritten
  // All guarded by mutex.
  std::string waiting;
  std::size_t writing_bytes = 0;  // taken by the thread, not written yet
  bool room_wanted = false;
  bool thread_runs = false;
  bool stop = false;
  int error = 0;

  [[nodiscard]] std::size_t held() const { return waiting.size() + writing_bytes; }
  void Run();
  bool WriteOut(const std::string& bytes);
  void Written(std::size_t bytes);
  void Break(int why);
  bool Stopped() const {
    const std::lock_guard lock(mutex);
    return stop;
  }
};

void ConsoleWriter::Shared::Run() {
  for (;;) {
    std::string taken;
    {
      std::unique_lock lock(mutex);
      work.wait(lock, [this] { return stop || !waiting.empty(); });
      if (stop) {
        return;
      }
      taken.swap(waiting);
      writing_bytes = taken.size();
    }
    if (!WriteOut(taken)) {
      return;
    }
  }
}

// False: the thread is to end.
bool ConsoleWriter::Shared::WriteOut(const std::string& bytes) {
  const std::size_t chunk_bytes = ChunkBytes(fd);
  std::string_view rest(bytes);
  while (!rest.empty()) {
    if (Stopped()) {
      return false;
    }
    // Wait here and not in write(2), where nothing can wake us.
    constexpr int kLookForStopMs = 50;
    pollfd room{fd, POLLOUT, 0};
    if (::poll(&room, 1, kLookForStopMs) == 0) {
      continue;
    }
    const std::string_view chunk = NextChunk(rest, chunk_bytes);
    const ssize_t n = ::write(fd, chunk.data(), chunk.size());
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
      Break(errno);
      return false;
    }
    const std::size_t count = n < 0 ? 0 : static_cast<std::size_t>(n);
    rest.remove_prefix(count);
    Written(count);
  }
  return true;
}

void ConsoleWriter::Shared::Written(std::size_t bytes) {
  bool tell = false;
  {
    const std::lock_guard lock(mutex);
    writing_bytes -= bytes;
    if (room_wanted && held() <= capacity_bytes / 2) {
      room_wanted = false;
      tell = true;
    }
    if (held() == 0) {
      written.notify_all();
    }
  }
  if (tell) {
    on_change();
  }
}

void ConsoleWriter::Shared::Break(int why) {
  {
    const std::lock_guard lock(mutex);
    error = why;
    waiting.clear();
    writing_bytes = 0;
    written.notify_all();
  }
  on_change();
}

ConsoleWriter::ConsoleWriter(int fd, std::size_t capacity_bytes, std::function<void()> on_change)
    : shared_(std::make_shared<Shared>(fd, capacity_bytes, std::move(on_change))) {}

ConsoleWriter::~ConsoleWriter() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->work.notify_all();
}

bool ConsoleWriter::Write(std::string_view bytes, bool force) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->error != 0) {
    return true;
  }
  if (!force && shared_->held() + bytes.size() > shared_->capacity_bytes) {
    shared_->room_wanted = true;
    return false;
  }
  const bool may_sleep = shared_->waiting.empty();
  shared_->waiting.append(bytes);
  if (!shared_->thread_runs) {
    shared_->thread_runs = true;
    const BlockAllSignals for_the_thread;
    std::thread([shared = shared_] { shared->Run(); }).detach();
  }
  if (may_sleep) {
    shared_->work.notify_one();
  }
  return true;
}

bool ConsoleWriter::HasRoom() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->error != 0 || shared_->held() < shared_->capacity_bytes) {
    return true;
  }
  shared_->room_wanted = true;
  return false;
}

bool ConsoleWriter::HalfEmpty() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->error != 0 || shared_->held() <= shared_->capacity_bytes / 2;
}

int ConsoleWriter::broken() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->error;
}

bool ConsoleWriter::WaitUntilWritten(Instant deadline) {
  std::unique_lock lock(shared_->mutex);
  return shared_->written.wait_until(lock, deadline, [this] { return shared_->held() == 0; });
}

}  // namespace ddl
