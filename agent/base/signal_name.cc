// sigabbrev_np(3) names them without "SIG".
#include "agent/base/signal_name.h"

#include <cstring>

namespace ddl {

std::string SignalName(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

}  // namespace ddl
