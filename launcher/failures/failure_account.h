// What a failed worker's own words (its traceback, its last lines of stderr) say
// about whose failure it was. When one rank fails, the connections to its peers
// break, and they fail too, sometimes sooner than the rank itself has ended. Pure;
// the words are those of Python, PyTorch, Gloo, NCCL and this SDK.
#ifndef DDLAUNCH_LAUNCHER_FAILURES_FAILURE_ACCOUNT_H_
#define DDLAUNCH_LAUNCHER_FAILURES_FAILURE_ACCOUNT_H_

#include <cstdint>
#include <set>
#include <string_view>

#include "agent/base/clock.h"
#include "launcher/round_info.h"

namespace ddl {

// It failed because a connection broke or a peer did not answer.
[[nodiscard]] bool BlamesPeer(std::string_view text);

// It is a collective, or what the ranks meet by, that broke so: not any connection
// that a program may have.
[[nodiscard]] bool BlamesPeerOfCollective(std::string_view text);

// An exception stands at its very end, and no log record says that it was caught.
// Whether it ended the program is not to be seen from it.
[[nodiscard]] bool EndsWithException(std::string_view text);

// It tells of a signal: an exception that a stop raised.
[[nodiscard]] bool TellsOfSignal(std::string_view text);

// How it is known that a worker had failed before its round was stopped.
enum class FailureEvidence : std::uint8_t {
  kNone,
  kEnded,      // it had ended by itself
  kErrorFile,  // its error file was there: it was on its way out
  // It said, to its launcher or by its exit code, that its device's memory ran out.
  kOutOfMemory,
  // It wrote an exception last, close to the stop, or words of memory that ran out. A guess, as a
  // healthy worker may have caught one: it counts less than a worker that ended by itself, unless
  // that one's collective broke.
  kLastWords,
};

// What else is known of a lack of device memory.
struct MemorySigns {
  const std::set<std::int32_t>* exit_codes = nullptr;  // the user's for it; null: none
  bool reported = false;                               // by the worker, through the SDK
};
[[nodiscard]] FailureEvidence EvidenceOfFailure(const WorkerExit& exit, Instant told_to_stop_at,
                                                const MemorySigns& memory = {});

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_FAILURES_FAILURE_ACCOUNT_H_
