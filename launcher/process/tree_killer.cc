// The look at /proc grows slower while it shows the same processes: they are
// dying, or never will.
#include "launcher/process/tree_killer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/process_tree.h"

namespace ddl {
namespace {

constexpr Duration kFirstLook = std::chrono::milliseconds(10);
constexpr Duration kSlowestLook = std::chrono::seconds(1);

}  // namespace

void TreeKiller::Begin(Instant now, Duration timeout) {
  give_up_at_ = active_ ? std::max(give_up_at_, now + timeout) : now + timeout;
  active_ = true;
  interval_ = kFirstLook;
  next_look_ = now;
  seen_.clear();
  just_left_.clear();
}

TreeKiller::Result TreeKiller::Continue(Instant now) {
  const std::vector<pid_t> pids = KillDescendants(::getpid());
  std::set<pid_t> still_there;
  std::vector<pid_t> fresh;
  for (const pid_t pid : pids) {
    if (left_behind_.contains(pid)) {
      still_there.insert(pid);
    } else {
      fresh.push_back(pid);
    }
  }
  left_behind_ = std::move(still_there);
  if (fresh.empty()) {
    active_ = false;
    return Result::kNobody;
  }
  if (now >= give_up_at_) {
    left_behind_.insert(fresh.begin(), fresh.end());
    just_left_ = std::move(fresh);
    active_ = false;
    return Result::kGivenUp;
  }
  interval_ = fresh == seen_ ? std::min(interval_ * 2, kSlowestLook) : kFirstLook;
  next_look_ = std::min(now + interval_, give_up_at_);
  seen_ = std::move(fresh);
  return Result::kGoesOn;
}

std::string LeftBehindText(pid_t pid, char state) {
  return "pid " + std::to_string(pid) + " (state " + state +
         ") does not die of SIGKILL; it is left behind";
}

}  // namespace ddl
