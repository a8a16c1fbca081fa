// The simulated world: time, network and faults from one seed.
#include "tests/sim/world.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/golden/render.h"

namespace ddl::core::sim {
namespace {

constexpr int kWord = 0;
constexpr int kTimer = 1;
constexpr std::size_t kMaxReplayWords = 256;
// No run lasts longer once faults have stopped: the longest join timeout, a few
// rounds, and the time an ended job waits for those that never leave.
constexpr Duration kHealingTime = std::chrono::seconds(400);
constexpr std::uint64_t kMaxActions = 1'000'000;

bool NamesARound(const Event& event) {
  return std::holds_alternative<WorkerFailed>(event) ||
         std::holds_alternative<WorkersSucceeded>(event) ||
         std::holds_alternative<RoundStopped>(event) || std::holds_alternative<KeyWritten>(event) ||
         std::holds_alternative<BarrierReached>(event);
}

struct NameOfEvent {
  std::string operator()(const AgentConnected& e) const {
    return absl::StrCat(e.agent.incarnation, " -> hello nproc=", e.nproc,
                        " rank=", e.node_rank.value_or(-1));
  }
  std::string operator()(const AgentHeard& e) const {
    return absl::StrCat(e.agent.incarnation, " -> heard port=", e.master_port);
  }
  std::string operator()(const AgentDisconnected& e) const {
    return absl::StrCat(e.agent.incarnation, " -> disconnected");
  }
  std::string operator()(const AgentLeft& e) const {
    return absl::StrCat(e.agent.incarnation, " -> left");
  }
  std::string operator()(const WorkerFailed& e) const {
    return absl::StrCat(e.agent.incarnation, " -> failed round=", e.round);
  }
  std::string operator()(const WorkersSucceeded& e) const {
    return absl::StrCat(e.agent.incarnation, " -> succeeded round=", e.round);
  }
  std::string operator()(const RoundStopped& e) const {
    return absl::StrCat(e.agent.incarnation, " -> stopped round=", e.round);
  }
  std::string operator()(const StopRequested& e) const {
    return absl::StrCat(e.agent.incarnation, " -> stop ", e.signal);
  }
  std::string operator()(const TimerFired& e) const { return absl::StrCat("timer ", Render(e.id)); }
  std::string operator()(const StoreDone& e) const { return absl::StrCat("stored #", e.sequence); }
  template <typename Other>
  std::string operator()(const Other& e) const {
    return absl::StrCat(e.agent.incarnation, " -> word of round ", e.round);
  }
};

}  // namespace

World::World(std::uint64_t seed, bool trace)
    : dice_(seed), scenario_(Draw(dice_)), tracing_(trace) {}

Scenario World::Draw(Dice& dice) {
  Scenario scenario;
  scenario.num_jobs = dice.Chance(20) ? 2 : 1;
  scenario.num_nodes =
      static_cast<std::int32_t>(dice.Chance(70) ? dice.Between(1, 4) : dice.Between(5, 16));
  scenario.max_restarts = static_cast<std::int32_t>(dice.Between(0, 3));
  scenario.join_timeout = dice.Chance(80) ? dice.Ms(60'000, 90'000) : dice.Ms(2'000, 8'000);
  scenario.pinned = dice.Chance(30);
  scenario.with_plan = dice.Chance(50);
  scenario.faults_until = dice.Ms(5'000, 25'000);
  scenario.fault_every = dice.Chance(10) ? Duration::zero() : dice.Ms(200, 4'000);
  scenario.worker_fails_percent = static_cast<int>(dice.Between(0, 30));
  scenario.stuck_percent = dice.Chance(30) ? 20 : 0;
  return scenario;
}

void World::Log(const std::string& line) {
  if (tracing_) {
    absl::StrAppend(&trace_text_, Render(now_.time_since_epoch()), "  ", line, "\n");
  }
}

void World::At(Instant at, int order, std::function<void()> action) {
  actions_.push(Action{at, order, num_actions_++, std::move(action)});
}

void World::After(Duration delay, std::function<void()> action) {
  At(now_ + delay, kWord, std::move(action));
}

// ---- network ----------------------------------------------------------------

void World::Send(Agent& agent, Event event) {
  if (!agent.stream_up) {
    return;
  }
  agent.last_up = std::max(agent.last_up, now_ + dice_.Ms(0, 60));
  At(agent.last_up, kWord, [this, &agent, stream = agent.stream, event = std::move(event)] {
    if (stream != agent.stream || !agent.stream_up) {
      return;
    }
    if (NamesARound(event) && dice_.Chance(20)) {
      if (heard_.size() < kMaxReplayWords) {
        heard_.push_back(event);
      } else {
        heard_[static_cast<std::size_t>(dice_.Between(0, kMaxReplayWords - 1))] = event;
      }
    }
    Step(event);
  });
}

void World::Deliver(const Reply& reply) {
  const auto it = by_ref_.find(reply.agent);
  if (it == by_ref_.end() || !it->second->stream_up) {
    return;
  }
  Agent& agent = *it->second;
  agent.last_down = std::max(agent.last_down, now_ + dice_.Ms(0, 60));
  At(agent.last_down, kWord, [this, &agent, stream = agent.stream, message = reply.message] {
    const auto receive = [&agent, stream, message] {
      if (stream == agent.stream && agent.stream_up) {
        agent.Receive(message);
      }
    };
    if (agent.paused()) {
      agent.last_down = std::max(agent.last_down, agent.paused_until());
      At(agent.paused_until(), kWord, receive);
    } else {
      receive();
    }
  });
}

void World::BreakStream(Agent& agent, bool core_notices) {
  if (!agent.stream_up) {
    return;
  }
  agent.stream_up = false;
  if (core_notices) {
    After(dice_.Ms(0, 30), [this, &agent, stream = agent.stream] {
      if (stream == agent.stream) {  // else a newer stream has replaced it
        Step(AgentDisconnected{agent.ref()});
      }
    });
  }
  agent.OnStreamBroken();
}

// ---- the coordinator's shell ------------------------------------------------

void World::Step(const Event& event) {
  if (tracing_) {
    Log(std::visit(NameOfEvent{}, event));
  }
  const Effects effects = rendezvous_.Step(now_, event);
  std::string job_id;
  std::visit(
      [&job_id](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, TimerFired>) {
          job_id = e.id.job_id;
        } else if constexpr (std::is_same_v<E, StoreDone>) {
          job_id = e.job_id;
        } else {
          job_id = e.agent.job_id;
        }
      },
      event);
  for (const Effect& effect : effects) {
    if (tracing_) {
      Log("    " + Render(effect));
    }
    if (const auto* const persist = std::get_if<Persist>(&effect)) {
      AnswerStore(*persist);
    } else if (const auto* const reply = std::get_if<Reply>(&effect)) {
      Deliver(*reply);
      Count(std::holds_alternative<RoundStart>(reply->message) ? "round starts" : "replies");
    } else if (const auto* const arm = std::get_if<ArmTimer>(&effect)) {
      ArmTimerOf(*arm);
    }
  }
  checker_.AfterStep(now_, event, effects, rendezvous_.FindJob(job_id) != nullptr);
}

void World::ArmTimerOf(const ArmTimer& arm) {
  const std::uint64_t arming = ++num_arms_;
  timers_[arm.id] = arming;
  At(arm.deadline, kTimer, [this, id = arm.id, arming] {
    if (timers_[id] == arming) {
      Step(TimerFired{id});
    }
  });
}

void World::AnswerStore(const Persist& persist) {
  store_free_at_ = std::max(store_free_at_, now_ + dice_.Ms(0, 40));
  if (faulty() && dice_.Chance(5)) {
    store_free_at_ += dice_.Ms(500, 3'000);
  }
  At(store_free_at_, kWord,
     [this, done = StoreDone{persist.job_id, persist.sequence}] { Step(done); });
}

// ---- nodes and faults -------------------------------------------------------

void World::MakeHello(AgentConnected& hello, std::int32_t job, std::int32_t place) {
  hello.agent = AgentRef{absl::StrCat("job", job), absl::StrCat("n", agents_.size())};
  hello.host = absl::StrCat("host", place);
  hello.address = absl::StrCat("10.0.", job, ".", place);
  hello.nproc = 1 + place % 3;
  hello.min_nodes = scenario_.num_nodes;
  hello.max_nodes = scenario_.num_nodes;
  hello.max_restarts = scenario_.max_restarts;
  hello.join_timeout = scenario_.join_timeout;
  hello.stop_grace = std::chrono::seconds(2);
  if (scenario_.pinned && place % 2 == 0 && place < scenario_.num_nodes) {
    hello.node_rank = scenario_.num_nodes - 1 - place;
  }
  if (scenario_.with_plan) {
    hello.plan.micro_batch_size = 4;
  }
  if (faulty() && !agents_.empty() && dice_.Chance(4)) {
    ++hello.max_restarts;  // somebody mistyped
  }
}

void World::Spawn(std::int32_t job, std::int32_t place) {
  AgentConnected hello;
  MakeHello(hello, job, place);
  agents_.push_back(std::make_unique<Agent>(*this, hello, place));
  Agent& agent = *agents_.back();
  by_ref_[agent.ref()] = &agent;
  agent.Connect();
}

void World::Kill(Agent& agent) {
  const bool power_cut = dice_.Chance(20);
  Count(power_cut ? "power cuts" : "kills");
  Log(absl::StrCat(agent.ref().incarnation, power_cut ? " loses power" : " is killed"));
  agent.Die();
  BreakStream(agent, !power_cut);
}

void World::ScheduleFault() {
  if (scenario_.fault_every == Duration::zero()) {
    return;
  }
  After(
      dice_.Ms(
          1,
          std::chrono::duration_cast<std::chrono::milliseconds>(2 * scenario_.fault_every).count()),
      [this] {
        if (faulty()) {
          InjectFault();
          ScheduleFault();
        }
      });
}

void World::InjectFault() {
  std::vector<Agent*> alive;
  for (const auto& agent : agents_) {
    if (agent->alive()) {
      alive.push_back(agent.get());
    }
  }
  if (alive.empty()) {
    return;
  }
  Agent& victim = *alive[static_cast<std::size_t>(
      dice_.Between(0, static_cast<std::int64_t>(alive.size()) - 1))];
  const std::int64_t kind = dice_.Between(0, 99);
  if (kind < 30) {
    Log(absl::StrCat(victim.ref().incarnation, " loses its stream"));
    Count("broken streams");
    BreakStream(victim, true);
  } else if (kind < 50) {
    Kill(victim);
  } else if (kind < 62) {
    Log(absl::StrCat(victim.ref().incarnation, " stands still"));
    Count("pauses");
    victim.PauseUntil(now_ + dice_.Ms(500, 9'000));
  } else if (kind < 72) {
    Log(absl::StrCat(victim.ref().incarnation, " has a stalled link"));
    Count("stalls");
    const Instant until = now_ + dice_.Ms(500, 9'000);
    victim.last_up = std::max(victim.last_up, until);
    victim.last_down = std::max(victim.last_down, until);
  } else if (kind < 74) {
    Count("user stops");
    victim.StopByUser(dice_.Chance(50) ? 2 : 15);
  } else if (kind < 78) {
    Count("surplus nodes");
    Spawn(0, static_cast<std::int32_t>(dice_.Between(0, scenario_.num_nodes)));
  } else {
    Replay();
  }
}

// A word heard before arrives again, perhaps much later.
void World::Replay() {
  if (heard_.empty()) {
    return;
  }
  Count("replays");
  const auto index = dice_.Between(0, static_cast<std::int64_t>(heard_.size()) - 1);
  const Event event = heard_[static_cast<std::size_t>(index)];
  Step(event);
}

void World::Janitor() {
  for (std::int32_t job = 0; job < scenario_.num_jobs; ++job) {
    const std::string job_id = absl::StrCat("job", job);
    if (rendezvous_.FindJob(job_id) == nullptr || !checker_.JobIsOpen(job_id)) {
      continue;  // it has its result; nobody starts it again
    }
    for (std::int32_t place = 0; place < scenario_.num_nodes; ++place) {
      const bool there = std::any_of(
          agents_.begin(), agents_.end(), [&job_id, place](const std::unique_ptr<Agent>& agent) {
            return agent->alive() && agent->ref().job_id == job_id && agent->place() == place;
          });
      if (!there && (!faulty() || dice_.Chance(40))) {
        Spawn(job, place);
      }
    }
  }
  if (NumAlive() > 0 || rendezvous_.num_jobs() > 0) {
    After(dice_.Ms(100, 1'500), [this] { Janitor(); });
  }
}

std::size_t World::NumAlive() const {
  return static_cast<std::size_t>(
      std::count_if(agents_.begin(), agents_.end(),
                    [](const std::unique_ptr<Agent>& agent) { return agent->alive(); }));
}

// ---- a run ------------------------------------------------------------------

std::string World::Run() {
  for (std::int32_t job = 0; job < scenario_.num_jobs; ++job) {
    for (std::int32_t place = 0; place < scenario_.num_nodes; ++place) {
      After(dice_.Ms(0, 3'000), [this, job, place] { Spawn(job, place); });
    }
  }
  After(std::chrono::seconds(4), [this] { Janitor(); });
  ScheduleFault();
  const Instant limit = Instant{} + scenario_.faults_until + kHealingTime;
  while (!actions_.empty() && checker_.violation().empty() && actions_.top().at <= limit) {
    if (num_actions_ > kMaxActions) {
      return "the run never comes to rest: timers or words without end";
    }
    now_ = actions_.top().at;
    const std::function<void()> run = actions_.top().run;
    actions_.pop();
    run();
  }
  return Finish();
}

std::string World::Finish() const {
  if (!checker_.violation().empty()) {
    return checker_.violation();
  }
  for (const auto& agent : agents_) {
    if (agent->alive()) {
      return absl::StrCat(agent->ref().incarnation, " of ", agent->ref().job_id,
                          " still waits though the network has healed");
    }
  }
  if (rendezvous_.num_jobs() != 0) {
    return "a job without agents is still on record";
  }
  return "";
}

}  // namespace ddl::core::sim
