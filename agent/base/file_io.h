// Whole writes and bounded whole reads of file descriptors, past interruptions
// and short counts. Thread safe; they block where the descriptor does.
#ifndef DDLAUNCH_AGENT_BASE_FILE_IO_H_
#define DDLAUNCH_AGENT_BASE_FILE_IO_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddl {

// Returns 0, or the errno of write(2); some of the bytes may be written then.
[[nodiscard]] int WriteAll(int fd, std::string_view bytes);

// From where the descriptor stands to the end, at most `max_bytes`. An error of
// read(2) is taken for the end.
[[nodiscard]] std::string ReadUpTo(int fd, std::size_t max_bytes);

// The same of a file; nothing: it cannot be opened.
[[nodiscard]] std::optional<std::string> ReadFileUpTo(const std::string& path,
                                                      std::size_t max_bytes);

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_FILE_IO_H_
