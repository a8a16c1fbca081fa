// Agenda: what is to happen in the simulated world, by time. At one instant,
// words come before timers; else in the order in which they were entered.
#ifndef DDLAUNCH_TESTS_SIM_AGENDA_H_
#define DDLAUNCH_TESTS_SIM_AGENDA_H_

#include <cstdint>
#include <queue>
#include <vector>

#include "tests/sim/time.h"

namespace ddl::sim {

enum class What : std::uint8_t {
  // who: stream
  kWordUp,
  kWordDown,
  kEndUp,
  kEndDown,  // arg: status code
  // who: node
  kNodeTimer,
  kNodeThaws,
  kWorkers,  // arg: see node.h
  kLease,
  // the coordinator; arg of all but kStored: its life
  kCoordinatorTimer,
  kCoordinatorThaws,
  kCoordinatorStarts,
  kStored,  // arg: index of the write
  // the world
  kSpawn,  // who: job, arg: place
  kFault,
  kScheduler,
};

struct Entry {
  Time at;
  std::uint64_t order;
  std::uint64_t arg;
  std::uint32_t who;
  What what;
};

class Agenda {
 public:
  void At(Time at, What what, std::uint32_t who, std::uint64_t arg) {
    const bool timer =
        what == What::kNodeTimer || what == What::kCoordinatorTimer || what == What::kLease;
    entries_.push(Entry{at, (timer ? kTimers : 0) + sequence_++, arg, who, what});
  }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const Entry& top() const { return entries_.top(); }
  void Pop() { entries_.pop(); }
  [[nodiscard]] std::uint64_t num_entered() const { return sequence_; }

 private:
  static constexpr std::uint64_t kTimers = std::uint64_t{1} << 63U;
  struct Later {
    bool operator()(const Entry& left, const Entry& right) const {
      return left.at != right.at ? left.at > right.at : left.order > right.order;
    }
  };
  std::priority_queue<Entry, std::vector<Entry>, Later> entries_;
  std::uint64_t sequence_ = 0;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_AGENDA_H_
