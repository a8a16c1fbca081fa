// TreeKiller: SIGKILL to everything below this process, again and again, until
// nobody is left or the time is up. A process that hangs in the kernel does not
// die of SIGKILL; it is then left behind, and waited for by nobody again.
//
// Not thread safe. Reaping is the caller's: a zombie counts as left.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_TREE_KILLER_H_
#define DDLAUNCH_LAUNCHER_PROCESS_TREE_KILLER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/base/clock.h"

namespace ddl {

class TreeKiller {
 public:
  enum class Result : std::uint8_t {
    kGoesOn,   // some are left; call Continue again at next_look()
    kNobody,   // done: nobody is left but those that were left behind before
    kGivenUp,  // done: the time is up; just_left() did not die
  };

  // From now on active. Called again while active: the later end counts.
  void Begin(Instant now, Duration timeout);
  // Kills what is there now. Sooner than next_look() is fine: a child's death
  // is a good moment. REQUIRES: active().
  Result Continue(Instant now);

  [[nodiscard]] bool active() const { return active_; }
  // Soon while the tree changes, then less and less often: each look reads
  // /proc.
  [[nodiscard]] Instant next_look() const { return next_look_; }
  [[nodiscard]] const std::vector<pid_t>& just_left() const { return just_left_; }

 private:
  bool active_ = false;
  Instant give_up_at_{};
  Instant next_look_{};
  Duration interval_{};
  std::vector<pid_t> seen_;
  std::vector<pid_t> just_left_;
  std::set<pid_t> left_behind_;  // of earlier times, and still there
};

// "pid 4711 (state D) does not die of SIGKILL; it is left behind"
std::string LeftBehindText(pid_t pid, char state);

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_TREE_KILLER_H_
