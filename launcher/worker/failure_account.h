// What a failed worker's own words (its traceback, its last lines of stderr) say
// about whose failure it was. When one rank fails, the connections to its peers
// break, and they fail too, sometimes sooner than the rank itself has ended. Pure;
// the words are those of Python, PyTorch, Gloo, NCCL and this SDK.
#ifndef DDLAUNCH_LAUNCHER_WORKER_FAILURE_ACCOUNT_H_
#define DDLAUNCH_LAUNCHER_WORKER_FAILURE_ACCOUNT_H_

#include <string_view>

namespace ddl {

// It failed because a connection broke or a peer did not answer.
[[nodiscard]] bool BlamesPeer(std::string_view text);

// It tells of an exception that nobody caught: had it been left alone, the worker
// would have ended by itself.
[[nodiscard]] bool TellsOfException(std::string_view text);

// It tells of a signal: an exception that a stop raised.
[[nodiscard]] bool TellsOfSignal(std::string_view text);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_FAILURE_ACCOUNT_H_
