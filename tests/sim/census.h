// Census: which workers are alive in the simulated world, and the invariant that
// all others serve: a rank never has two owners. When a worker of a round starts,
// no worker of another round of its job is alive anywhere, also not of a job of
// the same id before it, nor of a round from before the coordinator's restart.
#ifndef DDLAUNCH_TESTS_SIM_CENSUS_H_
#define DDLAUNCH_TESTS_SIM_CENSUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "agent/core/options.h"
#include "agent/core/types.h"
#include "tests/sim/network.h"

namespace ddl::sim {

class Census {
 public:
  explicit Census(const core::Options& options) : options_(options) {}

  // The workers of one node.
  struct Group {
    NodeId node = 0;
    int job = 0;
    std::uint32_t coordinator_life = 0;
    std::uint32_t job_life = 0;  // unique over all jobs
    std::int64_t round = 0;
    std::int32_t first_rank = 0;
    std::int32_t nproc = 0;
    // The coordinator had lost its memory, and nobody from before had told it of
    // this job when the round was formed.
    bool unwarned = false;
    // No signal ends them in time; see DrawScenario.
    bool unkillable = false;
    // The coordinator saw the node's stream break, and the node did not.
    bool unaware = false;
  };

  // Empty: it may start. Else whose life it threatens.
  [[nodiscard]] std::string Begin(const Group& group);
  void End(NodeId node);
  void MarkUnkillable(NodeId node);
  // Marks those of which `is_unaware(node)` is true.
  template <typename Predicate>
  void MarkUnaware(Predicate is_unaware) {
    for (Group& group : alive_) {
      group.unaware = group.unaware || is_unaware(group.node);
    }
  }
  // Starts beside what nobody could have known of, by kind; see IsExcused.
  struct Excused {
    int unkillable = 0;
    int unaware = 0;
    int unwarned = 0;
  };
  [[nodiscard]] const Excused& excused() const { return excused_; }

 private:
  // Two owners that the rules do not prevent:
  //  - Workers that not even SIGKILL ends (they hang in the kernel): their node
  //    was given up after its stop grace and the margin, and was told so.
  //  - A stream broke at the coordinator's end while the node's process stood still
  //    or was cut off, or its own end still looked well. A broken stream counts as
  //    the process's end, unless Options::broken_stream_proves_nothing is set.
  //  - A coordinator restarted without memory, at which only newcomers arrive:
  //    it cannot know that a round of the job lives on at nodes that are cut off
  //    from it and have yet to notice. The first of them that speaks ends it. With
  //    Options::hold_after_start it waits for them.
  [[nodiscard]] bool IsExcused(const Group& alive, const Group& starting);

  const core::Options options_;
  std::vector<Group> alive_;
  Excused excused_;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_CENSUS_H_
