// Runs gnuplot, for a bounded time: see drawing.h.
#include "launcher/tune/drawing.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/base/clock.h"
#include "agent/base/status_macros.h"
#include "launcher/exit_code.h"
#include "launcher/poll_until.h"
#include "launcher/tune/child.h"
#include "launcher/worker/worker_env.h"

namespace ddl::tune {
namespace {

constexpr std::array<const char*, 2> kPictures = {"tune.svg", "tune.png"};

int WaitFor(Child& child) {
  constexpr Duration kLongest = std::chrono::seconds(60);
  const Instant deadline = MonotonicNow() + kLongest;
  for (;;) {
    if (const std::optional<int> code = child.TryReap()) {
      return *code;
    }
    if (MonotonicNow() >= deadline) {
      return kExitFailure;  // Child's end kills it
    }
    std::array<pollfd, 1> fds{{{child.pidfd(), POLLIN, 0}}};
    PollUntil(fds, deadline);
  }
}

bool IsThere(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 && about.st_size > 0;
}

}  // namespace

absl::Status Draw(const Results& results, const std::string& script) {
  DDL_RETURN_IF_ERROR(results.Write("tune.gp", script));
  DDL_ASSIGN_OR_RETURN(Child child, Child::Start({.argv = {"gnuplot", "tune.gp"},
                                                  .path = "",
                                                  .environment = OwnEnvironment(),
                                                  .cwd = results.directory(),
                                                  .output = results.PathOf("gnuplot.log")}));
  const int code = WaitFor(child);
  const bool is_full = IsDiskFull(results.directory());
  const bool all = std::all_of(kPictures.begin(), kPictures.end(),
                               [&](const char* name) { return IsThere(results.PathOf(name)); });
  if (code == 0 && all && !is_full) {
    results.Remove("gnuplot.log");
    return absl::OkStatus();
  }
  for (const char* const name : kPictures) {
    results.Remove(name);
  }
  if (code == kExitNotFound) {
    results.Remove("gnuplot.log");
    return absl::InternalError(
        absl::StrCat("there is no gnuplot (Debian: gnuplot-nox); with it, run: cd ",
                     results.directory(), " && gnuplot tune.gp"));
  }
  return absl::InternalError(
      is_full ? absl::StrCat("the disk of ", results.directory(), " is full")
              : absl::StrCat("gnuplot failed, see ", results.PathOf("gnuplot.log")));
}

}  // namespace ddl::tune
