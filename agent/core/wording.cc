// Names and numbers as people read them.
#include "agent/core/wording.h"

#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddl::core {
namespace {

constexpr std::size_t kShortIncarnationChars = 8;
// What a shell adds to a signal's number to make an exit code.
constexpr std::int32_t kSignalBase = 128;
constexpr std::int32_t kMaxExitCode = 255;
constexpr std::int32_t kUnknownFailureCode = 1;

}  // namespace

std::string InSeconds(Duration duration) {
  constexpr double kHundredths = 100;
  const double seconds = std::chrono::duration<double>(duration).count();
  return absl::StrCat(std::round(seconds * kHundredths) / kHundredths, " s");
}

std::string Counted(std::int64_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string ShortIncarnation(const std::string& incarnation) {
  return incarnation.substr(0, kShortIncarnationChars);
}

std::string NameSome(const std::vector<std::string>& names, std::size_t total) {
  std::string text = absl::StrJoin(names, ", ");
  if (total > names.size()) {
    absl::StrAppend(&text, " and ", total - names.size(), " more");
  }
  return text;
}

std::string NameRanks(const std::vector<std::int32_t>& ranks) {
  std::vector<std::string> names;
  std::size_t named = 0;
  for (std::size_t i = 0; i < ranks.size() && names.size() < kMaxNamed;) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    names.push_back(last == i ? absl::StrCat(ranks[i]) : absl::StrCat(ranks[i], "-", ranks[last]));
    named += last - i + 1;
    i = last + 1;
  }
  return NameSome(names, names.size() + (ranks.size() - named));
}

std::string Describe(const WorkerFailure& failure) {
  std::string text = absl::StrCat("rank ", failure.rank, " (local rank ", failure.local_rank,
                                  ") on host ", failure.host);
  if (failure.term_signal != 0) {
    absl::StrAppend(&text, " was ended by signal ", failure.term_signal);
  } else {
    absl::StrAppend(&text, " exited with code ", failure.exit_code,
                    failure.exit_code == 0 ? " and left its peers waiting" : "");
  }
  return text;
}

std::int32_t ExitCodeOf(const WorkerFailure& failure) {
  if (failure.term_signal != 0) {
    return ExitCodeOfSignal(failure.term_signal);
  }
  const bool valid = failure.exit_code > 0 && failure.exit_code <= kMaxExitCode;
  return valid ? failure.exit_code : kUnknownFailureCode;
}

std::int32_t ExitCodeOfSignal(std::int32_t signal) {
  const bool valid = signal > 0 && signal <= kMaxExitCode - kSignalBase;
  return valid ? kSignalBase + signal : kUnknownFailureCode;
}

}  // namespace ddl::core
