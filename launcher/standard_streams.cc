// Streams that were closed are opened before anything else runs: see standard_streams.h.
#include "launcher/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "agent/base/errno_text.h"
#include "agent/base/file_io.h"

namespace ddl {
namespace {

bool g_stdout_was_closed = false;  // set before main()

// A standard stream that is closed at start must not become some descriptor of
// ours, which workers would then inherit. Runs before any other constructor:
// gRPC's open descriptors of their own.
__attribute__((constructor(101))) void OpenStandardStreams() {
  g_stdout_was_closed = ::fcntl(STDOUT_FILENO, F_GETFD) < 0 && errno == EBADF;
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    ::close(fd);
  }
}

}  // namespace

absl::Status PrintToStdout(std::string_view text) {
  const int error = g_stdout_was_closed ? EBADF : WriteAll(STDOUT_FILENO, text);
  return error == 0 ? absl::OkStatus()
                    : absl::InternalError(ErrnoText("cannot write to standard output", error));
}

}  // namespace ddl
