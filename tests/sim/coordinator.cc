// The coordinator's process.
#include "tests/sim/coordinator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/golden/render.h"
#include "tests/sim/text.h"
#include "tests/sim/world.h"

namespace ddl::sim {
namespace {

constexpr StreamId kNoStream = ~StreamId{0};

const std::string& JobOf(const core::Event& event) {
  return std::visit(
      [](const auto& e) -> const std::string& {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, core::TimerFired>) {
          return e.id.job_id;
        } else if constexpr (std::is_same_v<E, core::StoreDone>) {
          return e.job_id;
        } else {
          return e.agent.job_id;
        }
      },
      event);
}

}  // namespace

void Coordinator::Start(const Clock& clock) {
  ++life_;
  clock_ = clock;
  core_ = std::make_unique<core::Rendezvous>(world_.scenario().options);
  wakes_at_ = kNever;
  frozen_until_ = Time{};
  hold_.emplace(world_.scenario().options.heartbeat_interval, clock_.Shows(world_.now()));
  world_.network().CoordinatorStarts();
}

void Coordinator::Crash() {
  core_.reset();
  current_.clear();
  timers_.clear();
  inbox_.clear();
  world_.network().CoordinatorDies();
}

void Coordinator::Freeze(Time until) {
  frozen_until_ = std::max(frozen_until_, until);
  world_.At(frozen_until_, What::kCoordinatorThaws, 0, life_);
}

bool Coordinator::frozen() const {
  return world_.now() < frozen_until_;
}

StreamId& Coordinator::CurrentOf(NodeId node) {
  if (current_.size() <= node) {
    current_.resize(node + 1, kNoStream);
  }
  return current_[node];
}

bool Coordinator::IsKnown(StreamId stream) {
  return CurrentOf(world_.network().NodeOf(stream)) == stream;
}

// ---- what comes in ----------------------------------------------------------

void Coordinator::Hear(StreamId stream, core::Event event) {
  Waiting waiting{stream, std::move(event)};
  if (frozen()) {
    inbox_.push_back(std::move(waiting));
  } else {
    Handle(waiting);
  }
}

void Coordinator::SeeEnd(StreamId stream) {
  Waiting waiting{stream, std::nullopt};
  if (frozen()) {
    inbox_.push_back(std::move(waiting));
  } else {
    Handle(waiting);
  }
}

void Coordinator::Handle(Waiting& waiting) {
  hold_->OnAwake(clock_.Shows(world_.now()), NextTimer());
  if (waiting.from_store) {
    Step(*waiting.event);
    return;
  }
  const NodeId node = world_.network().NodeOf(waiting.stream);
  if (!waiting.event.has_value()) {
    const bool known = IsKnown(waiting.stream);
    world_.network().CoordinatorCloses(waiting.stream, absl::StatusCode::kOk);
    if (known) {
      CurrentOf(node) = kNoStream;
      world_.NoteDisconnected(node);
      Step(core::AgentDisconnected{world_.RefOf(node)});
    }
    return;
  }
  const core::Event& event = *waiting.event;
  if (std::holds_alternative<core::AgentConnected>(event)) {
    StreamId& newest = CurrentOf(node);
    if (newest != kNoStream) {
      world_.network().CoordinatorCloses(newest, absl::StatusCode::kAborted);
    }
    newest = waiting.stream;
  } else if (!IsKnown(waiting.stream)) {
    return;
  }
  Step(event);
  if (std::holds_alternative<core::AgentLeft>(event) && IsKnown(waiting.stream)) {
    CurrentOf(node) = kNoStream;
  }
}

void Coordinator::OnStored(std::uint64_t write) {
  Write& done = writes_[write];
  if (!up() || done.life != life_) {
    return;
  }
  Waiting waiting;
  waiting.event = std::move(done.done);
  waiting.from_store = true;
  if (frozen()) {
    inbox_.push_back(std::move(waiting));
  } else {
    Handle(waiting);
  }
}

void Coordinator::Replay(const core::Event& event) {
  if (up() && !frozen()) {
    Step(event);
  }
}

// ---- time -------------------------------------------------------------------

void Coordinator::OnThaw(std::uint64_t life) {
  if (!up() || life != life_ || frozen()) {
    return;
  }
  world_.Trace([] { return "the coordinator goes on"; });
  std::vector<Waiting> inbox = std::exchange(inbox_, {});
  for (Waiting& waiting : inbox) {
    Handle(waiting);
  }
  wakes_at_ = kNever;
  const Instant local = clock_.Shows(world_.now());
  if (const std::optional<Instant> next = NextTimer(); next.has_value()) {
    hold_->OnAwake(local, next);
    WakeFor(std::max(local, *next));
  }
}

std::optional<Instant> Coordinator::NextTimer() const {
  const auto first = std::min_element(
      timers_.begin(), timers_.end(),
      [](const Timer& left, const Timer& right) { return left.deadline < right.deadline; });
  return first == timers_.end() ? std::nullopt : std::optional(first->deadline);
}

void Coordinator::WakeFor(Instant deadline) {
  const Time at = std::max(clock_.When(hold_->WakeFor(deadline)), world_.now());
  if (at < wakes_at_) {
    wakes_at_ = at;
    world_.At(wakes_at_, What::kCoordinatorTimer, 0, life_);
  }
}

void Coordinator::OnTimer(std::uint64_t life) {
  if (!up() || life != life_ || frozen()) {
    return;
  }
  if (wakes_at_ == world_.now()) {
    wakes_at_ = kNever;
  }
  const Instant local = clock_.Shows(world_.now());
  while (hold_->OnAwake(local, NextTimer())) {
    const auto first =
        std::min_element(timers_.begin(), timers_.end(), [](const Timer& left, const Timer& right) {
          return left.deadline != right.deadline ? left.deadline < right.deadline
                                                 : left.id < right.id;
        });
    if (first == timers_.end() || first->deadline > local) {
      break;
    }
    core::TimerFired fired{std::move(first->id)};
    *first = std::move(timers_.back());
    timers_.pop_back();
    Step(fired);
  }
  if (const std::optional<Instant> next = NextTimer(); next.has_value()) {
    WakeFor(*next);
  }
}

// ---- the core ---------------------------------------------------------------

void Coordinator::Step(const core::Event& event) {
  world_.Trace([&event] { return Describe(event); });
  const Instant local = clock_.Shows(world_.now());
  core::Effects effects = core_->Step(local, event);
  world_.checker().AfterStep(life_, local, event, effects, core_->FindJob(JobOf(event)) != nullptr);
  for (core::Effect& effect : effects) {
    world_.Trace([&effect] { return "    " + core::Render(effect); });
    std::visit([this](auto& one) { Apply(one); }, effect);
  }
}

void Coordinator::Apply(core::Persist& persist) {
  Dice& dice = world_.dice();
  store_free_at_ = std::max(store_free_at_, world_.now() + dice.Ms(0, 40));
  if (world_.faulty() && dice.Chance(5)) {
    store_free_at_ += dice.Ms(500, 3'000);
  }
  writes_.push_back(Write{life_, core::StoreDone{std::move(persist.job_id), persist.sequence}});
  world_.At(store_free_at_, What::kStored, 0, writes_.size() - 1);
}

void Coordinator::Apply(core::Reply& reply) {
  StreamId& current = CurrentOf(NodeOfRef(reply.agent));
  if (current == kNoStream) {
    return;
  }
  const bool rejected = std::holds_alternative<core::Rejected>(reply.message);
  if (std::holds_alternative<core::Welcome>(reply.message)) {
    world_.NoteConnected(world_.network().NodeOf(current));
  }
  world_.network().SendDown(current, std::move(reply.message));
  if (rejected) {
    world_.network().CoordinatorCloses(current, absl::StatusCode::kOk);
    current = kNoStream;
  }
}

void Coordinator::Apply(core::ArmTimer& arm) {
  const auto it = std::find_if(timers_.begin(), timers_.end(),
                               [&arm](const Timer& timer) { return timer.id == arm.id; });
  if (it != timers_.end()) {
    it->deadline = arm.deadline;
  } else {
    timers_.push_back(Timer{std::move(arm.id), arm.deadline});
  }
  WakeFor(arm.deadline);
}

}  // namespace ddl::sim
