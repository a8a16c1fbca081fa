// ConsoleWriter: a bounded buffer and the thread that writes it to one
// descriptor, so that a slow reader of the console stops nobody else.
//
// Thread safe. The thread starts with the first byte: a job that prints nothing
// pays nothing.
#ifndef DDLAUNCH_LAUNCHER_LOGS_CONSOLE_WRITER_H_
#define DDLAUNCH_LAUNCHER_LOGS_CONSOLE_WRITER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "agent/base/clock.h"

namespace ddl {

class ConsoleWriter {
 public:
  // `fd` stays the caller's and must stay open as long as the process prints.
  // `on_change` runs in the writer's thread when there is room again after
  // HasRoom() or Write() said no, and when the descriptor broke; it must be
  // quick and may be called after this object is gone (the thread may then
  // still sit in write(2)), so it must own what it touches.
  ConsoleWriter(int fd, std::size_t capacity_bytes, std::function<void()> on_change);
  // Drops what is not written yet. Does not wait for a write that is stuck.
  ~ConsoleWriter();
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  // False: no room, nothing was taken. `force` takes it whatever the room, for
  // what is bounded otherwise.
  [[nodiscard]] bool Write(std::string_view bytes, bool force);
  [[nodiscard]] bool HasRoom();
  // At most half full: for who waits until it pays to go on.
  [[nodiscard]] bool HalfEmpty() const;

  // The errno of a write that failed for good (EPIPE: the reader is gone); 0:
  // none did. Everything is then taken and dropped.
  [[nodiscard]] int broken() const;

  // False: `deadline` passed before all was written.
  bool WaitUntilWritten(Instant deadline);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LOGS_CONSOLE_WRITER_H_
