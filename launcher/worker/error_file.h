// A worker's error file: what torch.distributed.elastic's @record (or anybody)
// writes to TORCHELASTIC_ERROR_FILE when the training function raises. Thread
// safe.
#ifndef DDLAUNCH_LAUNCHER_WORKER_ERROR_FILE_H_
#define DDLAUNCH_LAUNCHER_WORKER_ERROR_FILE_H_

#include <string>

namespace ddl {

// The message, and the Python traceback if there is one; valid UTF-8 of a
// bounded length. Empty: there is no such file, or nothing to be made of it; a
// worker writes what it likes, so that is no error.
//   {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "..."}}}
//   {"message": "text"}
std::string ReadErrorFile(const std::string& path);

// The same for the file's content.
std::string ParseErrorFile(const std::string& content);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_ERROR_FILE_H_
