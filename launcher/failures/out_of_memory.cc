// Exit codes and last words.
#include "launcher/failures/out_of_memory.h"

#include <csignal>
#include <cstddef>
#include <string>

#include "agent/base/device_memory.h"
#include "launcher/exit_code.h"
#include "launcher/failures/stderr_words.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

// What belongs to the line above, and what others say when a program ends, does not
// count: stacks, the rest of a long message, the summary of Weights & Biases.
std::string WithoutNotes(std::string_view text) {
  std::string rest;
  for (const std::string_view line : LinesOf(text)) {
    const bool is_indented = !line.starts_with("  what()") && line.find_first_of(" \t") == 0;
    if (!line.empty() && !is_indented && !IsStackNote(line) && !line.starts_with("wandb: ")) {
      rest.append(line).push_back('\n');
    }
  }
  return rest;
}

}  // namespace

bool LastSaysOutOfMemory(std::string_view text) {
  // What stands above so many lines, the program has survived.
  constexpr std::size_t kLastLines = 5;
  constexpr std::size_t kLastLinesOfException = 8;  // PyTorch's may have 6
  const std::string_view exception = FinalException(text);
  return SaysOutOfDeviceMemory(exception.empty()
                                   ? LastLines(WithoutNotes(text), kLastLines)
                                   : LastLines(WithoutNotes(exception), kLastLinesOfException));
}

bool ExitCodeSaysOutOfMemory(const HowItEnded& how, const std::set<std::int32_t>& exit_codes) {
  return exit_codes.contains(how.term_signal == 0 ? how.exit_code
                                                  : kSignalExitBase + how.term_signal);
}

bool EndedOutOfMemory(const HowItEnded& how, const std::set<std::int32_t>& exit_codes) {
  if (ExitCodeSaysOutOfMemory(how, exit_codes)) {
    return true;
  }
  const bool has_own_words = how.term_signal == 0 ? how.exit_code != 0 : how.term_signal == SIGABRT;
  return has_own_words && LastSaysOutOfMemory(how.error_text);
}

}  // namespace ddl
