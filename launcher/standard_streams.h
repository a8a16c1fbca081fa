// The standard streams of this process, as it was started with them. Thread safe.
#ifndef DDLAUNCH_LAUNCHER_STANDARD_STREAMS_H_
#define DDLAUNCH_LAUNCHER_STANDARD_STREAMS_H_

#include <string_view>

#include "absl/status/status.h"

namespace ddl {

// All of `text` to stdout. Errors: INTERNAL, not all of it could be written, also where
// stdout was closed at the start; the message says why.
absl::Status PrintToStdout(std::string_view text);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_STANDARD_STREAMS_H_
