// A signal's name, for people to read. Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_SIGNAL_NAME_H_
#define DDLAUNCH_AGENT_BASE_SIGNAL_NAME_H_

#include <string>

namespace ddl {

// "SIGKILL"; "signal 64" for one without a name.
[[nodiscard]] std::string SignalName(int signal);

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_SIGNAL_NAME_H_
