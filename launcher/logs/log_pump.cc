// One thread, which does what it is told in that order, and between that reads
// the streams. log_streams.h has what becomes of the bytes.
#include "launcher/logs/log_pump.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "agent/base/thread_signals.h"
#include "launcher/failures/error_file.h"
#include "launcher/logs/log_streams.h"

namespace ddl {
namespace {

constexpr auto kEndTimeout = std::chrono::seconds(1);

void Wake(int eventfd) {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  [[maybe_unused]] const ssize_t n = ::write(eventfd, &one, sizeof(one));
}

// Commands, in the order in which they were given.
struct AddCommand {
  WorkerId worker = kEveryWorker;
  std::vector<StreamSpec> streams;
};
struct DrainCommand {
  WorkerId worker = kEveryWorker;
  std::string error_file;
};
struct CloseAllCommand {};
struct PrintCommand {
  std::string lines;
};
struct FlushCommand {
  std::uint64_t ticket = 0;
};
using Command = std::variant<AddCommand, DrainCommand, CloseAllCommand, PrintCommand, FlushCommand>;

}  // namespace

class LogPump::Thread : public std::enable_shared_from_this<LogPump::Thread> {
 public:
  Thread(const ConsoleOptions& options, int notify_fd);
  ~Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void Post(Command command);
  std::vector<DrainedWorker> TakeDrained();
  bool Flush(Instant deadline);
  void Stop(Instant deadline);

 private:
  void Run();
  bool RunCommands();
  void Do(AddCommand& command);
  void Do(DrainCommand& command);
  void Do(CloseAllCommand& command);
  void Do(PrintCommand& command);
  void Do(FlushCommand& command);

  // Owned with the console writers' threads, which may outlive us.
  const std::shared_ptr<UniqueFd> wake_;
  const UniqueFd notify_fd_;  // a copy: the owner of the other may be gone

  LogStreams streams_;  // the pump's thread only, but for WaitUntilWritten

  std::mutex mutex_;
  std::condition_variable flushed_cv_;
  std::condition_variable ended_cv_;
  // All guarded by mutex_.
  std::deque<Command> commands_;
  std::vector<DrainedWorker> drained_;
  std::uint64_t flushes_asked_ = 0;
  std::uint64_t flushes_done_ = 0;
  bool stop_ = false;
  bool ended_ = false;

  std::thread thread_;  // started with the first command
};

LogPump::Thread::Thread(const ConsoleOptions& options, int notify_fd)
    : wake_(std::make_shared<UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      notify_fd_(::fcntl(notify_fd, F_DUPFD_CLOEXEC, 0)),
      streams_(options, wake_->get(), [fd = wake_] { Wake(fd->get()); }) {}

void LogPump::Thread::Stop(Instant deadline) {
  std::unique_lock lock(mutex_);
  stop_ = true;
  if (!thread_.joinable()) {
    return;
  }
  Wake(wake_->get());
  if (ended_cv_.wait_until(lock, deadline, [this] { return ended_; })) {
    lock.unlock();
    thread_.join();
  } else {
    thread_.detach();  // the thread owns us, too
  }
}

void LogPump::Thread::Post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    if (!thread_.joinable()) {
      const BlockAllSignals for_the_thread;
      thread_ = std::thread([self = shared_from_this()] { self->Run(); });
    }
  }
  Wake(wake_->get());
}

std::vector<DrainedWorker> LogPump::Thread::TakeDrained() {
  const std::lock_guard lock(mutex_);
  return std::exchange(drained_, {});
}

bool LogPump::Thread::Flush(Instant deadline) {
  std::uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      return true;  // nothing was ever printed
    }
    ticket = ++flushes_asked_;
  }
  Post(FlushCommand{ticket});
  {
    std::unique_lock lock(mutex_);
    if (!flushed_cv_.wait_until(lock, deadline,
                                [this, ticket] { return flushes_done_ >= ticket; })) {
      return false;
    }
  }
  return streams_.WaitUntilWritten(deadline);
}

void LogPump::Thread::Run() {
  while (RunCommands()) {
    streams_.Wait();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  ended_cv_.notify_all();
}

// False: the thread is to end.
bool LogPump::Thread::RunCommands() {
  for (;;) {
    Command command;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) {
        return false;
      }
      if (commands_.empty()) {
        return true;
      }
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    std::visit([this](auto& what) { Do(what); }, command);
  }
}

void LogPump::Thread::Do(AddCommand& command) {
  streams_.Add(command.worker, std::move(command.streams));
}

void LogPump::Thread::Do(DrainCommand& command) {
  DrainedWorker drained = streams_.Drain(command.worker);
  if (!command.error_file.empty()) {
    ErrorFile file = ReadErrorFile(command.error_file);
    drained.error_text = std::move(file.text);
    drained.error_timestamp_s = file.timestamp_s;
    // From the wall's clock to the monotonic one: both are read at this moment.
    const WallTime now = std::chrono::system_clock::now();
    drained.error_at = MonotonicNow() - (now - file.written_at.value_or(now));
  }
  {
    const std::lock_guard lock(mutex_);
    drained_.push_back(std::move(drained));
  }
  Wake(notify_fd_.get());
}

void LogPump::Thread::Do(CloseAllCommand& /*command*/) {
  streams_.CloseAll();
}

void LogPump::Thread::Do(PrintCommand& command) {
  streams_.Print(command.lines);
}

void LogPump::Thread::Do(FlushCommand& command) {
  streams_.ReadAll();
  const std::lock_guard lock(mutex_);
  flushes_done_ = command.ticket;
  flushed_cv_.notify_all();
}

LogPump::LogPump(const ConsoleOptions& console, int notify_fd)
    : thread_(std::make_shared<Thread>(console, notify_fd)) {}

LogPump::~LogPump() {
  thread_->Stop(MonotonicNow() + kEndTimeout);
}

void LogPump::Add(WorkerId worker, std::vector<StreamSpec> streams) {
  thread_->Post(AddCommand{worker, std::move(streams)});
}

void LogPump::Drain(WorkerId worker, std::string error_file) {
  thread_->Post(DrainCommand{worker, std::move(error_file)});
}

std::vector<DrainedWorker> LogPump::TakeDrained() {
  return thread_->TakeDrained();
}

void LogPump::CloseAll() {
  thread_->Post(CloseAllCommand{});
}

void LogPump::Print(std::string lines) {
  thread_->Post(PrintCommand{std::move(lines)});
}

bool LogPump::Flush(Duration timeout) {
  return thread_->Flush(MonotonicNow() + timeout);
}

}  // namespace ddl
