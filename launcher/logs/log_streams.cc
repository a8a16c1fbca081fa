// One epoll over the pipes and the wake descriptor. Pipes are level-triggered;
// one that must wait for the console is taken out of the epoll, so that it costs
// nothing meanwhile.
#include "launcher/logs/log_streams.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"

namespace ddl {
namespace {

// A long native stack has some 100 frames of 200 characters, below what it is about.
constexpr std::size_t kTailBytes = std::size_t{32} << 10U;
constexpr int kMaxEvents = 64;
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

}  // namespace

LogStreams::LogStreams(const ConsoleOptions& options, int wake_fd,
                       const std::function<void()>& on_change)
    : wake_fd_(wake_fd), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  out_ = std::make_unique<Console>(options.stdout_fd, options.buffer_bytes, on_change);
  if (!SameFile(options.stdout_fd, options.stderr_fd)) {
    err_ = std::make_unique<Console>(options.stderr_fd, options.buffer_bytes, on_change);
  }
  Watch(kWakeSource, wake_fd);
}

void LogStreams::Watch(std::uint32_t id, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void LogStreams::Add(WorkerId worker, std::vector<StreamSpec> specs) {
  const auto tail = std::make_shared<Tail>(kTailBytes);
  tails_[worker] = tail;
  for (StreamSpec& spec : specs) {
    const std::uint32_t id = StreamId(worker, spec.is_stderr);
    Stream& stream = streams_[id];
    stream.spec = std::move(spec);
    stream.tail = stream.spec.is_stderr ? tail : nullptr;
    if (stream.spec.on_console) {
      stream.console = &console(stream.spec.is_stderr);
      LineStyle style{id, stream.spec.prefix, stream.spec.raw, stream.spec.file_path};
      stream.lines.emplace(stream.console, std::move(style));
    }
    if (stream.spec.filtered != nullptr) {
      stream.filter.emplace(stream.spec.filtered->filters, stream.spec.filtered_prefix);
    }
    Watch(id, stream.spec.pipe.get());
  }
}

DrainedWorker LogStreams::Drain(WorkerId worker) {
  for (const bool is_stderr : {false, true}) {
    const auto it = streams_.find(StreamId(worker, is_stderr));
    if (it != streams_.end()) {
      ReadWhatIsThere(it->second);
      FinishLines(it->second);
    }
  }
  DrainedWorker drained;
  drained.worker = worker;
  if (const auto tail = tails_.find(worker); tail != tails_.end()) {
    drained.stderr_tail = tail->second->text();
    drained.stderr_at = tail->second->last_at();
    tails_.erase(tail);
  }
  return drained;
}

void LogStreams::ReadAll() {
  for (auto& [id, stream] : streams_) {
    ReadWhatIsThere(stream);
  }
}

void LogStreams::CloseAll() {
  while (!streams_.empty()) {
    ReadWhatIsThere(streams_.begin()->second);
    Close(streams_.begin()->first);
  }
  tails_.clear();
}

void LogStreams::Print(std::string_view lines) {
  console(/*is_stderr=*/true).Print(lines);
}

void LogStreams::Wait() {
  std::array<epoll_event, kMaxEvents> events{};
  const int n = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, TimeoutMs());
  for (int i = 0; i < n; ++i) {
    const std::uint32_t id = events[static_cast<std::size_t>(i)].data.u32;
    if (id == kWakeSource) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t ignored = ::read(wake_fd_, &count, sizeof(count));
      ResumeStreams();
      TellBrokenConsoles();
    } else {
      OnReadable(id);
    }
  }
  ShowWhatIsDue();
}

bool LogStreams::WaitUntilWritten(Instant deadline) {
  return out_->writer().WaitUntilWritten(deadline) &&
         (err_ == nullptr || err_->writer().WaitUntilWritten(deadline));
}

void LogStreams::OnReadable(std::uint32_t id) {
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

LogStreams::ReadResult LogStreams::ReadOnce(Stream& stream, std::size_t max_bytes) {
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
  if (stream.filter.has_value()) {
    stream.filter->Append(bytes, matching_);
    WriteFiltered(stream);
  }
  if (stream.lines.has_value()) {
    stream.lines->Append(bytes, MonotonicNow());
  }
  return ReadResult::kData;
}

// As much as the pipe holds at this moment, whatever the room on the console:
// that is no more than a pipe's capacity, and whoever writes on cannot keep us.
void LogStreams::ReadWhatIsThere(Stream& stream) {
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

void LogStreams::WriteFile(Stream& stream, std::string_view bytes) {
  if (!stream.spec.file.valid()) {
    return;
  }
  if (const int error = WriteAll(stream.spec.file.get(), bytes); error != 0) {
    stream.spec.file.reset();
    if (stream.lines.has_value()) {
      stream.lines->LoseFile();
    }
    TellDisk(stream.spec.file_path, error);
  }
}

void LogStreams::WriteFiltered(Stream& stream) {
  FilteredFile& file = *stream.spec.filtered;
  if (file.fd.valid() && !matching_.empty()) {
    if (const int error = WriteAll(file.fd.get(), matching_); error != 0) {
      file.fd.reset();
      TellDisk(file.path, error);
    }
  }
  matching_.clear();
}

void LogStreams::TellDisk(const std::string& path, int error) {
  if (!std::exchange(told_disk_, true)) {
    console(/*is_stderr=*/true)
        .Notice(ErrnoText("cannot write the log file " + path, error) +
                "; it ends here, other log files may too; the workers go on");
  }
}

void LogStreams::FinishLines(Stream& stream) {
  if (stream.lines.has_value()) {
    stream.lines->Finish();
  }
  if (stream.filter.has_value()) {
    stream.filter->Finish(matching_);
    WriteFiltered(stream);
  }
}

void LogStreams::Close(std::uint32_t id) {
  const auto it = streams_.find(id);
  FinishLines(it->second);
  waiting_.erase(id);
  streams_.erase(it);  // closing the pipe takes it out of the epoll
}

void LogStreams::ResumeStreams() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Stream& stream = streams_.at(*it);
    if (!stream.console->writer().HasRoom()) {
      ++it;
      continue;
    }
    Watch(*it, stream.spec.pipe.get());
    it = waiting_.erase(it);
  }
}

// Once each, on the other one, if that still works and is another file.
void LogStreams::TellBrokenConsoles() {
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

void LogStreams::ShowWhatIsDue() {
  for (auto& [id, stream] : streams_) {
    if (stream.lines.has_value() && stream.lines->deadline().has_value()) {
      stream.lines->OnTime(MonotonicNow());
    }
  }
}

int LogStreams::TimeoutMs() const {
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

}  // namespace ddl
