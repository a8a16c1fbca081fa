// Exit codes and last words.
#include "launcher/failures/out_of_memory.h"

#include <csignal>

#include "agent/base/device_memory.h"

namespace ddl {

bool EndedOutOfMemory(const HowItEnded& how, const std::set<std::int32_t>& exit_codes) {
  if (how.term_signal == 0 && exit_codes.contains(how.exit_code)) {
    return true;
  }
  const bool has_own_words = how.term_signal == 0 ? how.exit_code != 0 : how.term_signal == SIGABRT;
  return has_own_words && SaysOutOfDeviceMemory(how.error_text);
}

}  // namespace ddl
