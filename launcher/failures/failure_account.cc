// Whose failure it was, by the worker's own words.
#include "launcher/failures/failure_account.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>

#include "launcher/exit_code.h"
#include "launcher/failures/out_of_memory.h"
#include "launcher/failures/stderr_words.h"
#include "launcher/failures/text.h"

namespace ddl {
namespace {

template <std::size_t N>
bool HasOneOf(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::any_of(words.begin(), words.end(), [text](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

// The code of our own signals is none: a shell whose program they ended leaves with it.
bool HasMemoryCode(const WorkerExit& exit, const MemorySigns& memory) {
  constexpr std::array<std::int32_t, 2> kOurs = {SIGTERM, SIGKILL};
  const bool is_ours = std::any_of(kOurs.begin(), kOurs.end(), [&](std::int32_t signal) {
    return exit.term_signal == signal || exit.exit_code == kSignalExitBase + signal;
  });
  return !is_ours && memory.exit_codes != nullptr &&
         ExitCodeSaysOutOfMemory({exit.exit_code, exit.term_signal, exit.error_text},
                                 *memory.exit_codes);
}

}  // namespace

bool BlamesPeer(std::string_view text) {
  constexpr std::array<std::string_view, 17> kWords = {"ConnectionError",
                                                       "ConnectionResetError",
                                                       "ConnectionAbortedError",
                                                       "ConnectionRefusedError",
                                                       "BrokenPipeError",
                                                       "Connection reset by peer",
                                                       "Connection closed by peer",
                                                       "Broken pipe",
                                                       "DistNetworkError",
                                                       "DistStoreError",
                                                       "ncclRemoteError",
                                                       "ncclSystemError",
                                                       "remote process exited",
                                                       "Timed out waiting",
                                                       "collective operation timeout",
                                                       "the connection to a peer broke",
                                                       "a peer did not come within"};
  return HasOneOf(text, kWords);
}

bool BlamesPeerOfCollective(std::string_view text) {
  // Those of libraries, also where a traceback names their files.
  constexpr std::array<std::string_view, 12> kWords = {"gloo",
                                                       "nccl",
                                                       "NCCL",
                                                       "c10d",
                                                       "ProcessGroup",
                                                       "Connection closed by peer",
                                                       "DistNetworkError",
                                                       "DistStoreError",
                                                       "remote process exited",
                                                       "collective",
                                                       "the connection to a peer broke",
                                                       "a peer did not come within"};
  return BlamesPeer(text) && HasOneOf(text, kWords);
}

bool TellsOfSignal(std::string_view text) {
  constexpr std::array<std::string_view, 6> kWords = {"KeyboardInterrupt", "SystemExit", "SIGTERM",
                                                      "SignalException",   "signal",     "erminat"};
  const std::size_t last_line = text.find_last_of('\n', text.find_last_not_of('\n'));
  return HasOneOf(last_line == std::string_view::npos ? text : text.substr(last_line), kWords);
}

bool EndsWithException(std::string_view text) {
  constexpr std::string_view kPython = "Traceback (most recent call last)";
  constexpr std::string_view kNative = "terminate called after throwing";
  constexpr std::array<std::string_view, 3> kLogLevels = {"ERROR", "WARN", "CRITICAL"};
  const std::size_t python = text.rfind(kPython);
  const std::size_t native = text.rfind(kNative);
  if (python == std::string_view::npos && native == std::string_view::npos) {
    return false;
  }
  const bool is_python =
      python != std::string_view::npos && (native == std::string_view::npos || python > native);
  const std::size_t start = is_python ? python : native;
  if (HasOneOf(LastLines(text.substr(0, start), 1), kLogLevels)) {
    return false;  // logging.exception and its like
  }
  // Below both are indented lines, and below Python's the exception itself.
  int others = 0;
  const std::size_t newline = text.find('\n', start);
  text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  for (const std::string_view line : LinesOf(text)) {
    if (line.empty() || (IsStackNote(line) && (others > 0 || !is_python))) {
      continue;
    }
    if (line.front() != ' ') {
      ++others;
    } else if (others > 0) {
      return false;
    }
  }
  return others == (is_python ? 1 : 0);
}

FailureEvidence EvidenceOfFailure(const WorkerExit& exit, Instant told_to_stop_at,
                                  const MemorySigns& memory) {
  // For longer nobody takes to leave who then would have left by himself.
  constexpr Duration kClose = std::chrono::seconds(5);
  // What a worker wrote may be read so much later, on a loaded machine.
  constexpr Duration kReadingDelay = std::chrono::milliseconds(250);
  if (exit.ok()) {
    return FailureEvidence::kNone;
  }
  if (exit.ended_at < told_to_stop_at) {
    return FailureEvidence::kEnded;
  }
  if (memory.reported || HasMemoryCode(exit, memory)) {
    return FailureEvidence::kOutOfMemory;
  }
  // No stop makes a worker say that, not even one that it has words about, too.
  const bool is_memory = LastSaysOutOfMemory(exit.error_text);
  if (is_memory && !exit.error_path.empty()) {
    return FailureEvidence::kErrorFile;
  }
  if (is_memory && exit.stderr_at > told_to_stop_at - kClose) {
    return FailureEvidence::kLastWords;
  }
  if (TellsOfSignal(exit.error_text)) {
    return FailureEvidence::kNone;
  }
  if (!exit.error_path.empty() && exit.failed_at < told_to_stop_at) {
    return FailureEvidence::kErrorFile;
  }
  const bool is_close =
      exit.stderr_at > told_to_stop_at - kClose && exit.stderr_at < told_to_stop_at + kReadingDelay;
  return is_close && EndsWithException(exit.error_text) ? FailureEvidence::kLastWords
                                                        : FailureEvidence::kNone;
}

}  // namespace ddl
