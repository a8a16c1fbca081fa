// The simulated world.
#include "tests/sim/world.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ddl::sim {
namespace {

constexpr std::size_t kMaxHeard = 64;
// No run lasts longer once faults have stopped: join timeouts, a few rounds, and
// the time an ended job waits for those that never leave.
constexpr Time kHealingTime = std::chrono::seconds(300);
constexpr std::uint64_t kMaxEntries = 2'000'000;

bool NamesARound(const core::Event& event) {
  return std::holds_alternative<core::WorkerFailed>(event) ||
         std::holds_alternative<core::WorkersSucceeded>(event) ||
         std::holds_alternative<core::RoundStopped>(event) ||
         std::holds_alternative<core::KeyWritten>(event) ||
         std::holds_alternative<core::BarrierReached>(event);
}

}  // namespace

void Tallies::Add(const Tallies& other) {
  for (std::size_t tally = 0; tally < counts_.size(); ++tally) {
    for (std::size_t reason = 0; reason < kReasons; ++reason) {
      counts_[tally][reason] += other.counts_[tally][reason];
    }
  }
}

std::map<std::string, std::uint64_t> Tallies::ByName() const {
  static constexpr std::array<const char*, static_cast<std::size_t>(Tally::kNumTallies)> kNames = {
      "done",
      "rejected",
      "lost the coordinator",
      "spares",
      "worker failures",
      "reports of no memory",
      "restarts for memory",
      "leases passed",
      "round starts",
      "excused: unkillable",
      "excused: unaware",
      "excused: unwarned",
      "broken streams",
      "half broken streams",
      "kills",
      "power cuts",
      "freezes",
      "cuts",
      "stalls",
      "coordinator crashes",
      "coordinator freezes",
      "coordinator cuts",
      "user stops",
      "extra nodes",
      "replays",
      "jobs"};
  std::map<std::string, std::uint64_t> by_name;
  for (std::size_t tally = 0; tally < counts_.size(); ++tally) {
    for (std::size_t reason = 0; reason < kReasons; ++reason) {
      if (counts_[tally][reason] > 0) {
        const char* const name = kNames[tally];
        by_name[reason == 0
                    ? name
                    : absl::StrCat(name, ": ", core::ToString(static_cast<core::Reason>(reason)))] =
            counts_[tally][reason];
      }
    }
  }
  return by_name;
}

World::World(std::uint64_t seed, bool trace)
    : dice_(seed),
      scenario_(DrawScenario(dice_)),
      tracing_(trace),
      network_(agenda_, dice_, now_, *this),
      checker_(scenario_.options),
      census_(scenario_.options),
      coordinator_(*this),
      jobs_(static_cast<std::size_t>(scenario_.num_jobs)) {
  constexpr std::int64_t kLatencyMs = 40;
  constexpr std::int64_t kSlowLatencyMs = 250;
  network_.SetLatency(dice_.Chance(80) ? kLatencyMs : kSlowLatencyMs);
}

Clock World::DrawClock() {
  constexpr std::int64_t kMillion = 1'000'000;
  const std::int64_t drift = scenario_.drift_ppm;
  return {dice_.Ms(0, 3'600'000), kMillion + dice_.Between(-drift, drift)};
}

// ---- the parts, joined ------------------------------------------------------

void World::CoordinatorHears(StreamId stream, core::Event event) {
  if (NamesARound(event) && dice_.Chance(20)) {
    if (heard_.size() < kMaxHeard) {
      heard_.push_back(event);
    } else {
      heard_[static_cast<std::size_t>(dice_.Between(0, kMaxHeard - 1))] = event;
    }
  }
  coordinator_.Hear(stream, std::move(event));
}

void World::NodeHears(NodeId node, StreamId stream, core::Message message) {
  nodes_[node].Hear(stream, std::move(message));
}

void World::WorkersBegin(const Node& node, const core::RoundStart& start) {
  Count(Tally::kRoundStart);
  const Checker::RoundOrigin origin = checker_.OriginOf(node.where().id);
  Census::Group group;
  group.node = node.where().id;
  group.job = node.where().job;
  group.coordinator_life = origin.coordinator_life;
  group.job_life = origin.job_life;
  group.unwarned = origin.unwarned;
  group.round = start.round;
  group.first_rank = start.first_rank;
  group.nproc = start.nproc;
  group.unaware = node.IsUnaware();
  census_.MarkUnaware([this](NodeId alive) { return nodes_[alive].IsUnaware(); });
  Trace([&node, &start] {
    return absl::StrCat(node.ref().incarnation, " starts workers of round ", start.round);
  });
  if (const std::string violation = census_.Begin(group); !violation.empty()) {
    Fail(violation);
  }
}

void World::Do(const Entry& entry) {
  switch (entry.what) {
    case What::kWordUp:
      network_.OnWordUp(entry.who);
      return;
    case What::kWordDown:
      network_.OnWordDown(entry.who);
      return;
    case What::kEndUp:
      network_.OnEndUp(entry.who);
      return;
    case What::kEndDown:
      network_.OnEndDown(entry.who, entry.arg);
      return;
    case What::kNodeTimer:
      nodes_[entry.who].OnTimer();
      return;
    case What::kNodeThaws:
      nodes_[entry.who].OnThaw();
      return;
    case What::kWorkers:
      nodes_[entry.who].OnWorkers(entry.arg);
      return;
    case What::kLease:
      nodes_[entry.who].OnLease();
      return;
    case What::kCoordinatorTimer:
      coordinator_.OnTimer(entry.arg);
      return;
    case What::kCoordinatorThaws:
      coordinator_.OnThaw(entry.arg);
      return;
    case What::kCoordinatorStarts:
      Trace([] { return "the coordinator starts"; });
      coordinator_.Start(DrawClock());
      return;
    case What::kStored:
      coordinator_.OnStored(entry.arg);
      return;
    case What::kSpawn:
      Spawn(static_cast<int>(entry.who), static_cast<int>(entry.arg));
      return;
    case What::kFault:
      if (faulty()) {
        InjectFault();
        ScheduleFault();
      }
      return;
    case What::kScheduler:
      Scheduler();
      return;
  }
}

// ---- nodes ------------------------------------------------------------------

core::AgentConnected World::MakeHello(int job, int place) {
  core::AgentConnected hello;
  hello.agent = core::AgentRef{absl::StrCat("job", job), absl::StrCat("n", nodes_.size())};
  hello.host = absl::StrCat("host", place);
  hello.address = absl::StrCat("10.0.", job, ".", place);
  hello.nproc = 1 + place % 3;
  hello.min_nodes = scenario_.min_nodes;
  hello.max_nodes = scenario_.max_nodes;
  hello.max_restarts = scenario_.max_restarts;
  hello.join_timeout = scenario_.join_timeout;
  hello.last_call_timeout = scenario_.last_call_timeout;
  hello.stop_grace = scenario_.stop_grace;
  if (scenario_.pinned && place % 2 == 0 && place < scenario_.max_nodes) {
    hello.node_rank = scenario_.max_nodes - 1 - place;
  }
  hello.plan = scenario_.plan;
  if (dice_.Chance(80)) {
    hello.master_port = NextPort();
  }
  if (faulty() && nodes_.size() > 1 && dice_.Chance(2)) {
    ++hello.max_restarts;  // somebody mistyped
  }
  return hello;
}

void World::Spawn(int job, int place) {
  const core::AgentConnected hello = MakeHello(job, place);
  Node::Place where;
  where.id = static_cast<NodeId>(nodes_.size());
  where.job = job;
  where.place = place;
  where.life = jobs_[static_cast<std::size_t>(job)].life;
  Trace([&hello] {
    return absl::StrCat(hello.agent.incarnation, " of ", hello.agent.job_id, " is started on ",
                        hello.host);
  });
  nodes_.emplace_back(*this, where, hello, DrawClock());
  nodes_.back().Start();
}

// Keeps the jobs' machines busy: starts a node anew where one is missing, and a
// job's id again once it has a result.
void World::Scheduler() {
  bool more = false;
  for (int job = 0; job < scenario_.num_jobs; ++job) {
    JobUse& use = jobs_[static_cast<std::size_t>(job)];
    if (use.over) {
      continue;
    }
    const bool done = std::any_of(nodes_.begin(), nodes_.end(), [job, &use](const Node& node) {
      return node.where().job == job && node.where().life == use.life && node.job_done();
    });
    if (done && use.life == scenario_.lives) {
      use.over = true;
      Count(Tally::kJob);
      continue;
    }
    if (done) {
      ++use.life;  // at once, while the others still leave
      Count(Tally::kJob);
    }
    more = true;
    for (int place = 0; place < scenario_.start_nodes; ++place) {
      const bool there = std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
        return node.alive() && node.where().job == job && node.where().place == place &&
               node.where().life == use.life;
      });
      if (!there && (!faulty() || dice_.Chance(40))) {
        Spawn(job, place);
      }
    }
  }
  if (more) {
    At(now_ + dice_.Ms(50, 1'200), What::kScheduler, 0, 0);
  }
}

// ---- a run ------------------------------------------------------------------

std::string World::Run() {
  coordinator_.Start(DrawClock());
  for (int job = 0; job < scenario_.num_jobs; ++job) {
    for (int place = 0; place < scenario_.start_nodes; ++place) {
      At(dice_.Ms(0, dice_.Chance(70) ? 300 : 3'000), What::kSpawn, static_cast<std::uint32_t>(job),
         static_cast<std::uint64_t>(place));
    }
  }
  At(std::chrono::seconds(4), What::kScheduler, 0, 0);
  ScheduleFault();
  const Time limit = scenario_.faults_until + kHealingTime;
  while (!agenda_.empty() && checker_.violation().empty()) {
    const Entry entry = agenda_.top();
    if (entry.at > limit) {
      break;
    }
    if (agenda_.num_entered() > kMaxEntries) {
      return "the run never comes to rest: timers or words without end";
    }
    now_ = entry.at;
    agenda_.Pop();
    Do(entry);
  }
  const Census::Excused& excused = census_.excused();
  tallies_.Add(Tally::kExcusedUnkillable, {}, static_cast<std::uint64_t>(excused.unkillable));
  tallies_.Add(Tally::kExcusedUnaware, {}, static_cast<std::uint64_t>(excused.unaware));
  tallies_.Add(Tally::kExcusedUnwarned, {}, static_cast<std::uint64_t>(excused.unwarned));
  return Finish();
}

std::string World::Finish() const {
  if (!checker_.violation().empty()) {
    return checker_.violation();
  }
  for (const Node& node : nodes_) {
    if (node.alive()) {
      return absl::StrCat(node.ref().incarnation, " of ", node.ref().job_id,
                          " still waits though the network has healed");
    }
  }
  for (int job = 0; job < scenario_.num_jobs; ++job) {
    if (!jobs_[static_cast<std::size_t>(job)].over) {
      return absl::StrCat("job", job, " never came to its end though the network has healed");
    }
  }
  if (coordinator_.num_jobs() != 0) {
    return "a job without agents is still on record";
  }
  return "";
}

}  // namespace ddl::sim
