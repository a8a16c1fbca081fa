// One thread, one epoll over the pipes and an eventfd for commands. Pipes are
// level-triggered; one that must wait for the console is taken out of the
// epoll, so that it costs nothing meanwhile.
#include "launcher/worker/log_pump.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>

#include "launcher/worker/console.h"
#include "launcher/worker/errno_text.h"
#include "launcher/worker/error_file.h"
#include "launcher/worker/line_assembler.h"
#include "launcher/worker/text.h"
#include "launcher/worker/thread_signals.h"

namespace ddl {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{64} << 10U;
constexpr std::size_t kTailBytes = std::size_t{8} << 10U;
constexpr int kMaxEvents = 64;
constexpr auto kEndTimeout = std::chrono::seconds(1);
constexpr std::uint32_t kWakeSource = 0;  // stream ids start above

std::uint32_t StreamId(WorkerId worker, bool is_stderr) {
  return worker * 2 + (is_stderr ? 1 : 0);
}

bool SameFile(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

void Wake(int eventfd) {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  [[maybe_unused]] const ssize_t n = ::write(eventfd, &one, sizeof(one));
}

struct Stream {
  StreamSpec spec;
  std::optional<LineAssembler> lines;  // none: not on the console
  Console* console = nullptr;
  std::shared_ptr<Tail> tail;  // stderr only; shared with tails_
};

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
  enum class ReadResult : std::uint8_t { kData, kNothing, kEnd };

  void Run();
  bool RunCommands();
  void Do(AddCommand& command);
  void Do(DrainCommand& command);
  void Do(CloseAllCommand& command);
  void Do(PrintCommand& command);
  void Do(FlushCommand& command);

  void OnReadable(std::uint32_t id);
  ReadResult ReadOnce(Stream& stream, std::size_t max_bytes);
  void ReadWhatIsThere(Stream& stream);
  void WriteFile(Stream& stream, std::string_view bytes);
  void Close(std::uint32_t id);
  void ResumeStreams();
  void TellBrokenConsoles();
  void ShowWhatIsDue();
  [[nodiscard]] int TimeoutMs() const;
  Console& console(bool is_stderr) { return is_stderr && err_ ? *err_ : *out_; }

  // Owned with the console writers' threads, which may outlive us.
  const std::shared_ptr<UniqueFd> wake_;
  const UniqueFd notify_fd_;  // a copy: the owner of the other may be gone

  // The pump's thread only.
  UniqueFd epoll_;
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> err_;  // null: the same file as out_
  std::map<std::uint32_t, Stream> streams_;
  std::set<std::uint32_t> waiting_;                  // for their console
  std::map<WorkerId, std::shared_ptr<Tail>> tails_;  // stderr's, until drained
  std::array<char, kChunkBytes> buffer_{};
  bool told_disk_ = false;
  bool told_out_ = false;
  bool told_err_ = false;

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
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  const auto wake = [fd = wake_] { Wake(fd->get()); };
  out_ = std::make_unique<Console>(options.stdout_fd, options.buffer_bytes, wake);
  if (!SameFile(options.stdout_fd, options.stderr_fd)) {
    err_ = std::make_unique<Console>(options.stderr_fd, options.buffer_bytes, wake);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kWakeSource;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_->get(), &event);
}

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
  return out_->writer().WaitUntilWritten(deadline) &&
         (err_ == nullptr || err_->writer().WaitUntilWritten(deadline));
}

void LogPump::Thread::Run() {
  std::array<epoll_event, kMaxEvents> events{};
  while (RunCommands()) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, TimeoutMs());
    for (int i = 0; i < n; ++i) {
      const std::uint32_t id = events[static_cast<std::size_t>(i)].data.u32;
      if (id == kWakeSource) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t ignored = ::read(wake_->get(), &count, sizeof(count));
        ResumeStreams();
        TellBrokenConsoles();
      } else {
        OnReadable(id);
      }
    }
    ShowWhatIsDue();
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
  const auto tail = std::make_shared<Tail>(kTailBytes);
  tails_[command.worker] = tail;
  for (StreamSpec& spec : command.streams) {
    const std::uint32_t id = StreamId(command.worker, spec.is_stderr);
    Stream& stream = streams_[id];
    stream.spec = std::move(spec);
    stream.tail = stream.spec.is_stderr ? tail : nullptr;
    if (stream.spec.on_console) {
      stream.console = &console(stream.spec.is_stderr);
      LineStyle style{id, stream.spec.prefix, stream.spec.raw, stream.spec.file_path};
      stream.lines.emplace(stream.console, std::move(style));
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = id;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.spec.pipe.get(), &event);
  }
}

void LogPump::Thread::Do(DrainCommand& command) {
  for (const bool is_stderr : {false, true}) {
    const auto it = streams_.find(StreamId(command.worker, is_stderr));
    if (it != streams_.end()) {
      ReadWhatIsThere(it->second);
      if (it->second.lines.has_value()) {
        it->second.lines->Finish();
      }
    }
  }
  DrainedWorker drained;
  drained.worker = command.worker;
  if (const auto tail = tails_.find(command.worker); tail != tails_.end()) {
    drained.stderr_tail = tail->second->text();
    drained.stderr_at = tail->second->last_at();
    tails_.erase(tail);
  }
  if (!command.error_file.empty()) {
    drained.error_text = ReadErrorFile(command.error_file);
  }
  {
    const std::lock_guard lock(mutex_);
    drained_.push_back(std::move(drained));
  }
  Wake(notify_fd_.get());
}

void LogPump::Thread::Do(CloseAllCommand& /*command*/) {
  while (!streams_.empty()) {
    ReadWhatIsThere(streams_.begin()->second);
    Close(streams_.begin()->first);
  }
  tails_.clear();
}

void LogPump::Thread::Do(PrintCommand& command) {
  console(/*is_stderr=*/true).Print(command.lines);
}

void LogPump::Thread::Do(FlushCommand& command) {
  for (auto& [id, stream] : streams_) {
    ReadWhatIsThere(stream);
  }
  const std::lock_guard lock(mutex_);
  flushes_done_ = command.ticket;
  flushed_cv_.notify_all();
}

void LogPump::Thread::OnReadable(std::uint32_t id) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) {
    return;
  }
  Stream& stream = it->second;
  const bool may_lose_lines = stream.spec.file.valid() || stream.console == nullptr;
  if (!may_lose_lines && !stream.console->writer().HasRoom()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream.spec.pipe.get(), nullptr);
    waiting_.insert(id);
    return;
  }
  if (ReadOnce(stream, buffer_.size()) == ReadResult::kEnd) {
    Close(id);
  }
}

LogPump::Thread::ReadResult LogPump::Thread::ReadOnce(Stream& stream, std::size_t max_bytes) {
  const ssize_t n =
      ::read(stream.spec.pipe.get(), buffer_.data(), std::min(max_bytes, buffer_.size()));
  if (n < 0) {
    return errno == EAGAIN || errno == EINTR ? ReadResult::kNothing : ReadResult::kEnd;
  }
  if (n == 0) {
    return ReadResult::kEnd;
  }
  const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(n));
  if (stream.tail != nullptr) {
    stream.tail->Append(bytes, MonotonicNow());
  }
  WriteFile(stream, bytes);
  if (stream.lines.has_value()) {
    stream.lines->Append(bytes, MonotonicNow());
  }
  return ReadResult::kData;
}

// As much as the pipe holds at this moment, whatever the room on the console:
// that is no more than a pipe's capacity, and whoever writes on cannot keep us.
void LogPump::Thread::ReadWhatIsThere(Stream& stream) {
  int available = 0;
  if (::ioctl(stream.spec.pipe.get(), FIONREAD, &available) != 0) {
    return;
  }
  auto left = static_cast<std::size_t>(std::max(available, 0));
  while (left > 0) {
    const std::size_t take = std::min(left, buffer_.size());
    if (ReadOnce(stream, take) != ReadResult::kData) {
      return;
    }
    left -= take;
  }
}

void LogPump::Thread::WriteFile(Stream& stream, std::string_view bytes) {
  while (stream.spec.file.valid() && !bytes.empty()) {
    const ssize_t n = ::write(stream.spec.file.get(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) {
      continue;
    }
    const int error = errno;
    stream.spec.file.reset();
    if (stream.lines.has_value()) {
      stream.lines->LoseFile();
    }
    if (!std::exchange(told_disk_, true)) {
      console(/*is_stderr=*/true)
          .Notice(ErrnoText("cannot write the log file " + stream.spec.file_path, error) +
                  "; it ends here, other log files may too; the workers go on");
    }
  }
}

void LogPump::Thread::Close(std::uint32_t id) {
  const auto it = streams_.find(id);
  if (it->second.lines.has_value()) {
    it->second.lines->Finish();
  }
  waiting_.erase(id);
  streams_.erase(it);  // closing the pipe takes it out of the epoll
}

void LogPump::Thread::ResumeStreams() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Stream& stream = streams_.at(*it);
    if (!stream.console->writer().HasRoom()) {
      ++it;
      continue;
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = *it;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.spec.pipe.get(), &event);
    it = waiting_.erase(it);
  }
}

// Once each, on the other one, if that still works and is another file.
void LogPump::Thread::TellBrokenConsoles() {
  if (err_ == nullptr) {
    return;
  }
  const auto tell = [](Console& broken, const char* name, Console& other, bool& told) {
    const int error = broken.writer().broken();
    if (error != 0 && !std::exchange(told, true)) {
      other.Notice(ErrnoText(std::string("cannot write to ") + name, error) +
                   "; the workers' lines are no longer shown there; they go on");
    }
  };
  tell(*out_, "stdout", *err_, told_out_);
  tell(*err_, "stderr", *out_, told_err_);
}

void LogPump::Thread::ShowWhatIsDue() {
  for (auto& [id, stream] : streams_) {
    if (stream.lines.has_value() && stream.lines->deadline().has_value()) {
      stream.lines->OnTime(MonotonicNow());
    }
  }
}

int LogPump::Thread::TimeoutMs() const {
  std::optional<Instant> first;
  for (const auto& [id, stream] : streams_) {
    const auto due = stream.lines.has_value() ? stream.lines->deadline() : std::nullopt;
    if (due.has_value() && (!first.has_value() || *due < *first)) {
      first = due;
    }
  }
  if (!first.has_value()) {
    return -1;
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*first - MonotonicNow()).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 1000));
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
