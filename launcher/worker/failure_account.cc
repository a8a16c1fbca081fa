// Whose failure it was, by the worker's own words.
#include "launcher/worker/failure_account.h"

#include <algorithm>
#include <array>

namespace ddl {
namespace {

template <std::size_t N>
bool HasOneOf(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::any_of(words.begin(), words.end(), [text](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
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

bool TellsOfSignal(std::string_view text) {
  constexpr std::array<std::string_view, 6> kWords = {"KeyboardInterrupt", "SystemExit", "SIGTERM",
                                                      "SignalException",   "signal",     "erminat"};
  const std::size_t last_line = text.find_last_of('\n', text.find_last_not_of('\n'));
  return HasOneOf(last_line == std::string_view::npos ? text : text.substr(last_line), kWords);
}

bool TellsOfException(std::string_view text) {
  constexpr std::array<std::string_view, 2> kWords = {"Traceback (most recent call last)",
                                                      "terminate called after throwing"};
  return HasOneOf(text, kWords);
}

}  // namespace ddl
