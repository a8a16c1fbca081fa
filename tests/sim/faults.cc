// The faults of the simulated world.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tests/sim/world.h"

namespace ddl::sim {
namespace {

constexpr std::int64_t kShortestMs = 300;
constexpr std::int64_t kLongestMs = 9'000;

}  // namespace

void World::ScheduleFault() {
  if (scenario_.fault_every == Duration::zero()) {
    return;
  }
  const auto mean =
      std::chrono::duration_cast<std::chrono::milliseconds>(scenario_.fault_every).count();
  At(now_ + dice_.Ms(1, 2 * mean), What::kFault, 0, 0);
}

void World::InjectFault() {
  struct Fault {
    int weight;
    void (World::*inject)();
  };
  const FaultWeights& weights = scenario_.faults;
  const std::array faults = {
      Fault{weights.broken_stream, &World::BreakAStream},
      Fault{weights.half_broken_stream, &World::HalfBreakAStream},
      Fault{weights.kill, &World::KillANode},
      Fault{weights.power_cut, &World::CutPower},
      Fault{weights.freeze, &World::FreezeANode},
      Fault{weights.cut, &World::CutANode},
      Fault{weights.stall, &World::StallAStream},
      Fault{weights.coordinator_crash, &World::CrashCoordinator},
      Fault{weights.coordinator_freeze, &World::FreezeCoordinator},
      Fault{weights.coordinator_cut, &World::CutCoordinator},
      Fault{weights.user_stop, &World::StopANode},
      Fault{weights.extra_node, &World::StartAnExtraNode},
      Fault{weights.replay, &World::ReplayAWord},
  };
  const int sum =
      std::accumulate(faults.begin(), faults.end(), 0,
                      [](int so_far, const Fault& fault) { return so_far + fault.weight; });
  int drawn = dice_.Int(0, sum - 1);
  for (const Fault& fault : faults) {
    if (drawn < fault.weight) {
      (this->*fault.inject)();
      return;
    }
    drawn -= fault.weight;
  }
}

Duration World::DrawPrompt() {
  return dice_.Ms(0, 20);
}

Time World::DrawEnd() {
  return now_ + dice_.Ms(kShortestMs, kLongestMs);
}

Node* World::DrawVictim(Tally tally, const char* what) {
  const std::int64_t alive =
      std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.alive(); });
  if (alive == 0) {
    return nullptr;
  }
  std::int64_t index = dice_.Between(0, alive - 1);
  const auto victim = std::find_if(nodes_.begin(), nodes_.end(), [&index](const Node& node) {
    return node.alive() && index-- == 0;
  });
  Count(tally);
  Trace([&] { return absl::StrCat(victim->ref().incarnation, " ", what); });
  return &*victim;
}

// ---- streams ----------------------------------------------------------------

void World::BreakStreamOf(const Node& node, Duration coordinator_notices, Duration node_notices) {
  if (node.stream().has_value() && network_.IsOpen(*node.stream())) {
    network_.Break(*node.stream(), coordinator_notices, node_notices);
  }
}

void World::BreakAStream() {
  if (const Node* const node = DrawVictim(Tally::kBrokenStream, "has its stream broken")) {
    const Duration coordinator_notices = DrawPrompt();
    BreakStreamOf(*node, coordinator_notices, DrawPrompt());
  }
}

void World::HalfBreakAStream() {
  const Node* const node = DrawVictim(Tally::kHalfBrokenStream, "has its stream half broken");
  if (node == nullptr) {
    return;
  }
  if (dice_.Chance(50)) {
    // The coordinator learns of it late, or by silence.
    const Duration coordinator_notices = dice_.Chance(50) ? kNever : dice_.Ms(0, 8'000);
    BreakStreamOf(*node, coordinator_notices, DrawPrompt());
  } else {
    // The node learns of it when its next heartbeat is answered by a reset.
    const Duration coordinator_notices = DrawPrompt();
    BreakStreamOf(*node, coordinator_notices, dice_.Ms(0, 1'100));
  }
}

void World::StallAStream() {
  const Node* const node = DrawVictim(Tally::kStall, "has its stream stalled");
  if (node != nullptr && node->stream().has_value()) {
    network_.Stall(*node->stream(), DrawEnd());
  }
}

// ---- nodes ------------------------------------------------------------------

void World::KillANode() {
  if (Node* const node = DrawVictim(Tally::kKill, "is killed")) {
    node->Die(/*power_cut=*/false);
  }
}

void World::CutPower() {
  if (Node* const node = DrawVictim(Tally::kPowerCut, "loses power")) {
    node->Die(/*power_cut=*/true);
  }
}

void World::FreezeANode() {
  if (Node* const node = DrawVictim(Tally::kFreeze, "stands still")) {
    node->Freeze(DrawEnd());
  }
}

void World::CutANode() {
  const Node* const node = DrawVictim(Tally::kCut, "is cut off");
  if (node == nullptr) {
    return;
  }
  const Time until = DrawEnd();
  const bool hears = dice_.Chance(33);
  const bool is_heard = !hears && dice_.Chance(50);
  Trace([&] {
    return hears ? "  its words do not arrive" : is_heard ? "  it hears nothing" : "  both ways";
  });
  network_.Cut(node->where().id, is_heard ? Time{} : until, hears ? Time{} : until);
  // When it heals, what was held back arrives, or the stream has broken.
  if (dice_.Chance(40)) {
    BreakStreamOf(*node, until - now_, until - now_);
  }
}

void World::StopANode() {
  if (Node* const node = DrawVictim(Tally::kUserStop, "is stopped by its user")) {
    node->StopByUser(dice_.Chance(50) ? 2 : 15);
  }
}

void World::StartAnExtraNode() {
  Count(Tally::kExtraNode);
  Spawn(0, dice_.Int(0, scenario_.max_nodes + 1));
}

// ---- the coordinator --------------------------------------------------------

void World::CrashCoordinator() {
  if (!coordinator_.up()) {
    return;
  }
  Count(Tally::kCoordinatorCrash);
  Trace([] { return "the coordinator is killed"; });
  coordinator_.Crash();
  At(now_ + dice_.Ms(1, dice_.Chance(70) ? 700 : 4'000), What::kCoordinatorStarts, 0, 0);
}

void World::FreezeCoordinator() {
  if (!coordinator_.up()) {
    return;
  }
  Count(Tally::kCoordinatorFreeze);
  Trace([] { return "the coordinator stands still"; });
  coordinator_.Freeze(DrawEnd());
}

void World::CutCoordinator() {
  Count(Tally::kCoordinatorCut);
  Trace([] { return "the coordinator is cut off"; });
  const Time until = DrawEnd();
  for (const Node& node : nodes_) {
    if (node.alive()) {
      network_.Cut(node.where().id, until, until);
    }
  }
}

// A word that was heard before arrives again, perhaps much later.
void World::ReplayAWord() {
  if (heard_.empty()) {
    return;
  }
  Count(Tally::kReplay);
  const auto index = dice_.Between(0, static_cast<std::int64_t>(heard_.size()) - 1);
  const core::Event event = heard_[static_cast<std::size_t>(index)];
  coordinator_.Replay(event);
}

}  // namespace ddl::sim
