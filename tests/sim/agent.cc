// A simulated agent.
#include "tests/sim/agent.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace ddl::core::sim {
namespace {

constexpr std::int64_t kFirstPort = 20'000;
constexpr std::int64_t kLastPort = 60'000;
constexpr char kBarrier[] = "start";

}  // namespace

Agent::Agent(World& world, AgentConnected hello, std::int32_t place)
    : world_(world), hello_(std::move(hello)), place_(place) {
  world_.After(std::chrono::seconds(1), [this] { Heartbeat(); });
}

bool Agent::paused() const {
  return world_.now() < paused_until_;
}

void Agent::Connect() {
  stream_up = true;
  ++stream;
  last_up = world_.now();
  last_down = world_.now();
  world_.Send(*this, hello_);
  if (port_ == 0) {
    TellPort();
  } else {
    world_.Send(*this, AgentHeard{ref(), port_});
  }
}

void Agent::TellPort() {
  port_ = static_cast<std::uint32_t>(world_.dice().Between(kFirstPort, kLastPort));
  world_.Send(*this, AgentHeard{ref(), port_});
}

void Agent::Heartbeat() {
  if (!alive_) {
    return;
  }
  if (!paused()) {
    world_.Send(*this, AgentHeard{ref(), 0});
  }
  world_.After(std::chrono::seconds(1), [this] { Heartbeat(); });
}

void Agent::Die() {
  alive_ = false;
}

void Agent::OnStreamBroken() {
  if (!alive_) {
    return;
  }
  const bool running = workers_ == Workers::kStarting || workers_ == Workers::kRunning;
  if (running && world_.dice().Chance(10)) {
    workers_ = Workers::kNone;  // it gave up on the coordinator, and is back after all
    stopped_ = true;
  }
  // Most are back in time; some find that they were given up.
  world_.After(world_.dice().Ms(5, world_.dice().Chance(70) ? 800 : 2500), [this] {
    if (alive_ && !stream_up && !learned()) {
      Connect();
    }
  });
}

void Agent::StopByUser(std::int32_t signal) {
  if (alive_ && !learned()) {
    world_.Send(*this, StopRequested{ref(), signal});
  }
}

void Agent::Receive(const Message& message) {
  if (alive_ && !learned()) {
    std::visit([this](const auto& specific) { Act(specific); }, message);
  }
}

void Agent::Act(const RoundStart& start) {
  if (start.round == round_) {
    SayOpenWords();
    return;
  }
  if (start.round < round_) {
    world_.Fail(absl::StrCat(ref().incarnation, " was told of an old round"));
  }
  if (workers_ != Workers::kNone) {
    world_.Fail(absl::StrCat(ref().incarnation, " has workers of round ", round_,
                             " and must start round ", start.round));
  }
  round_ = start.round;
  node_rank_ = start.node_rank;
  barrier_reached_ = false;
  stopping_ = false;
  stopped_ = false;
  failure_ = WorkerFailure{};
  failure_.rank = start.first_rank;
  failure_.exit_code = static_cast<std::int32_t>(world_.dice().Between(1, 255));
  StartWorkers();
}

std::string Agent::KeyOfRound() const {
  return absl::StrCat("id of round ", round_);
}

void Agent::StartWorkers() {
  workers_ = Workers::kStarting;
  if (node_rank_ == 0) {
    world_.Send(*this, KeyWritten{ref(), round_, "id", KeyOfRound()});
  }
  world_.Send(*this, KeyWanted{ref(), round_, "id"});
  plan::Request request;
  request.micro_batch_size = 4;
  world_.Send(*this, PlanProposed{ref(), round_, request});
}

void Agent::Act(const KeyValue& key) {
  if (key.value != KeyOfRound() && key.round == round_) {
    world_.Fail(absl::StrCat(ref().incarnation, " got the key of another round"));
  }
  if (key.round == round_ && workers_ == Workers::kStarting && !barrier_reached_) {
    barrier_reached_ = true;
    world_.Send(*this, BarrierReached{ref(), round_, kBarrier});
  }
}

void Agent::Act(const BarrierDone& barrier) {
  if (barrier.round == round_ && workers_ == Workers::kStarting) {
    RunWorkers();
  }
}

void Agent::RunWorkers() {
  workers_ = Workers::kRunning;
  world_.After(world_.dice().Ms(200, 9000), [this, round = round_] { WorkersEnd(round); });
}

void Agent::WorkersEnd(std::int64_t round) {
  if (!alive_ || round != round_ || workers_ != Workers::kRunning) {
    return;
  }
  const int percent = world_.faulty() ? world_.scenario().worker_fails_percent : 0;
  if (world_.dice().Chance(percent)) {
    workers_ = Workers::kFailed;
    world_.Count("worker failures");
    world_.Send(*this, WorkerFailed{ref(), round_, failure_});
  } else {
    workers_ = Workers::kSucceeded;
    world_.Send(*this, WorkersSucceeded{ref(), round_});
  }
}

// After a broken stream: what was said before may have been lost.
void Agent::SayOpenWords() {
  switch (workers_) {
    case Workers::kNone:
      world_.Send(*this, RoundStopped{ref(), round_});
      return;
    case Workers::kStarting:
      StartWorkers();
      if (barrier_reached_) {
        world_.Send(*this, BarrierReached{ref(), round_, kBarrier});
      }
      return;
    case Workers::kRunning:
      return;
    case Workers::kFailed:
      world_.Send(*this, WorkerFailed{ref(), round_, failure_});
      return;
    case Workers::kSucceeded:
      world_.Send(*this, WorkersSucceeded{ref(), round_});
      return;
  }
}

void Agent::Act(const RoundStop& stop) {
  if (stop.round < round_) {
    world_.Fail(absl::StrCat(ref().incarnation, " must stop an old round"));
  }
  if (stop.round > round_) {  // never saw it start
    round_ = stop.round;
    workers_ = Workers::kNone;
  }
  if (workers_ == Workers::kNone) {
    WorkersGone();
    return;
  }
  if (stopping_) {
    return;
  }
  stopping_ = true;
  const bool stuck = world_.faulty() && world_.dice().Chance(world_.scenario().stuck_percent);
  const Duration delay = stuck ? world_.dice().Ms(8'000, 20'000) : world_.dice().Ms(10, 1'900);
  world_.After(delay, [this, round = round_] {
    if (alive_ && round == round_) {
      workers_ = Workers::kNone;
      WorkersGone();
    }
  });
}

void Agent::WorkersGone() {
  stopped_ = true;
  TellPort();
  world_.Send(*this, RoundStopped{ref(), round_});
}

void Agent::Act(const JobDone& done) {
  done_ = done;
  world_.Count(absl::StrCat("done: ", ToString(done.reason)));
  LeaveSoon();
}

void Agent::Act(const Rejected& rejected) {
  rejected_ = rejected;
  world_.Count(absl::StrCat("rejected: ", ToString(rejected.reason)));
  LeaveSoon();
}

void Agent::LeaveSoon() {
  world_.After(world_.dice().Ms(1, 500), [this] {
    if (!alive_) {
      return;
    }
    if (done_.has_value()) {
      world_.Send(*this, AgentLeft{ref(), ""});
    }
    Die();
    // The goodbye is on its way; the stream ends after it.
    world_.After(std::chrono::seconds(1), [this] { world_.BreakStream(*this, true); });
  });
}

}  // namespace ddl::core::sim
