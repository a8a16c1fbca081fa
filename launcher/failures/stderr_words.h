// What a worker's stderr says last: the lines to show, and the exception in them. The
// forms are those of Python, of C++'s runtime and of PyTorch. Pure.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_STDERR_WORDS_H_
#define DDLAUNCH_LAUNCHER_FAILURES_STDERR_WORDS_H_

#include <string>
#include <string_view>

namespace ddl {

// The last 20 lines of `tail`, the end of a stream. Of a longer exception the first
// lines are there too, with a note of what was left out between; of many native stack
// frames the first few. Without PyTorch's "[rank0]: " at the start of lines.
[[nodiscard]] std::string LastWords(std::string_view tail);

// The line shows a frame of a native stack, or introduces or explains one: it stands
// below an exception and is a part of it.
[[nodiscard]] bool IsStackNote(std::string_view line);

// From the line that names the last exception (Python's below its traceback, C++'s
// "terminate called after throwing") to the end; empty: there is none. One that
// another was raised from belongs to it ("the direct cause"). Those that end nothing
// do not count: ignored ones, those of threads, and those that a stop raised.
[[nodiscard]] std::string_view FinalException(std::string_view text);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_STDERR_WORDS_H_
