// A node's ddlaunch: as launcher/node, without its processes.
#include "tests/sim/node.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace ddl::sim {
namespace {

// As in launcher/node.cc.
constexpr Duration kLeaveTimeout = std::chrono::seconds(5);
constexpr Duration kResultTimeout = std::chrono::seconds(8);
// A node that notices a broken stream so soon after the coordinator is in time.
constexpr Duration kPromptly = std::chrono::milliseconds(20);
constexpr char kBarrier[] = "start";

std::string KeyOf(std::int64_t round) {
  return absl::StrCat("id of round ", round);
}

}  // namespace

Node::Node(World& world, const Place& where, const core::AgentConnected& hello, const Clock& clock)
    : world_(world),
      where_(where),
      ref_(hello.agent),
      hello_(hello),
      clock_(clock),
      session_({"coordinator", hello, hello.join_timeout}, clock.Shows(world.now())),
      has_port_(hello.master_port != 0) {}

bool Node::frozen() const {
  return world_.now() < frozen_until_;
}

Instant Node::local() const {
  return clock_.Shows(world_.now());
}

bool Node::stops_alone() const {
  return hello_.min_nodes < hello_.max_nodes;
}

bool Node::IsUnaware() const {
  if (disconnected_at == kNever) {
    return false;
  }
  return frozen_until_ >= disconnected_at || believes_connected_ ||
         learned_at_ > disconnected_at + kPromptly;
}

// ---- what happens to it -----------------------------------------------------

void Node::Start() {
  Apply(session_.Start(local()));
  Settle();
}

void Node::Hear(StreamId stream, core::Message message) {
  if (!alive_) {
    return;
  }
  if (frozen()) {
    inbox_.push_back(Waiting{stream, std::move(message), {}});
  } else if (stream == stream_) {
    Apply(session_.OnMessage(local(), attempt_, std::move(message)));
    Apply(session_.OnTime(local()));
    Settle();
  }
}

void Node::SeeEnd(StreamId stream, absl::StatusCode code) {
  if (!alive_) {
    return;
  }
  if (frozen()) {
    inbox_.push_back(Waiting{stream, std::nullopt, code});
  } else if (stream == stream_) {
    NoteStreamLost();
    Apply(session_.OnStreamEnded(local(), attempt_, absl::Status(code, "the stream broke")));
    Apply(session_.OnTime(local()));
    Settle();
  }
}

void Node::OnTimer() {
  if (wakes_at_ == world_.now()) {
    wakes_at_ = kNever;
  }
  if (!alive_ || frozen()) {
    return;
  }
  if (group_.alive && group_.kill_at.has_value() && local() >= *group_.kill_at) {
    group_.kill_at.reset();
    KillWorkers();
  }
  Apply(session_.OnTime(local()));
  Settle();
}

void Node::Freeze(Time until) {
  frozen_until_ = std::max(frozen_until_, until);
  world_.At(frozen_until_, What::kNodeThaws, where_.id, 0);
}

void Node::OnThaw() {
  if (!alive_ || frozen()) {
    return;
  }
  world_.Trace([this] { return absl::StrCat(ref_.incarnation, " goes on"); });
  wakes_at_ = kNever;
  // What was sent meanwhile may reach it before or after it looks at its clock.
  const bool words_first = world_.dice().Chance(60);
  if (!words_first) {
    Apply(session_.OnTime(local()));
  }
  std::vector<Waiting> inbox = std::exchange(inbox_, {});
  for (Waiting& waiting : inbox) {
    if (waiting.stream != stream_) {
      continue;
    }
    if (waiting.message.has_value()) {
      Apply(session_.OnMessage(local(), attempt_, *std::move(waiting.message)));
    } else {
      NoteStreamLost();
      Apply(session_.OnStreamEnded(local(), attempt_,
                                   absl::Status(waiting.code, "the stream broke")));
    }
  }
  Apply(session_.OnTime(local()));
  Settle();
}

void Node::Die(bool power_cut) {
  if (!alive_) {
    return;
  }
  alive_ = false;
  inbox_.clear();
  if (stream_.has_value()) {
    if (power_cut) {
      world_.network().NodeLosesPower(*stream_);
    } else {
      world_.network().NodeCancels(*stream_);
    }
  }
  if (group_.alive) {
    // The supervisor outlives it, and ends them.
    WorkersWillBeGone(power_cut ? Duration::zero() : world_.dice().Ms(0, 20));
  }
}

void Node::StopByUser(std::int32_t signal) {
  if (!alive_ || frozen() || stop_signal_ != 0 || finished_) {
    return;
  }
  stop_signal_ = signal;
  if (state_ == State::kJoining || parked_) {
    Finish();
  } else {
    Send(core::StopRequested{ref_, signal, stops_alone()});
    StopWorkers();
  }
  Settle();
}

// ---- the session ------------------------------------------------------------

void Node::Apply(SessionActions actions) {
  for (SessionAction& action : actions) {
    std::visit([this](auto& one) { Do(one); }, action);
  }
}

void Node::Do(OpenStream& open) {
  world_.Trace([this] { return absl::StrCat(ref_.incarnation, " opens a stream"); });
  attempt_ = open.attempt;
  stream_ = world_.network().Open(where_.id);
  world_.network().SendUp(*stream_, std::move(open.hello));
}

void Node::Do(SendEvent& send) {
  world_.network().SendUp(*stream_, std::move(send.event));
}

void Node::Do(const CancelStream& /*cancel*/) {
  NoteStreamLost();
  world_.network().NodeCancels(*stream_);
  stream_.reset();
}

void Node::Do(const HalfCloseStream& /*close*/) {
  world_.network().NodeHalfCloses(*stream_);
}

void Node::Do(core::Message& message) {
  std::visit([this](const auto& one) { On(one); }, message);
}

void Node::Do(const ClientLost& lost) {
  world_.Trace([this, &lost] {
    return absl::StrCat(ref_.incarnation, " is lost: ", std::string(lost.status.message()));
  });
  world_.Count(Tally::kLost);
  LosePlace();
}

void Node::Send(core::Event event) {
  Apply(session_.Send(std::move(event)));
}

void Node::Report(core::Event outcome) {
  outcome_ = std::move(outcome);
  Send(*outcome_);
}

void Node::Settle() {
  // The supervisor is told until when the workers may live.
  const std::optional<Instant> lease = session_.lease_until();
  lease_at_ = lease.has_value() ? clock_.When(*lease) : kNever;
  if (group_.alive && lease_at_ < lease_wakes_at_) {
    lease_wakes_at_ = std::max(lease_at_, world_.now());
    world_.At(lease_wakes_at_, What::kLease, where_.id, 0);
  }
  if (std::exchange(failure_unseen_, false)) {
    NoticeFailure();
  }
  if (std::exchange(idle_unseen_, false)) {
    NoticeIdle();
  }
  if (stop_signal_ != 0 && !group_.alive && !finished_) {
    if (stops_alone() && !group_.alive) {
      Finish();
    } else if (!leave_without_result_at_.has_value()) {
      leave_without_result_at_ = local() + kResultTimeout;
    } else if (local() >= *leave_without_result_at_) {
      Finish();
    }
  }
  if (finished_ && !group_.alive) {
    if (!exit_at_.has_value()) {
      exit_at_ = local() + kLeaveTimeout;
      Apply(session_.Leave("done"));
    }
    if (session_.closed() || local() >= *exit_at_) {
      Exit();
      return;
    }
  }
  SetTimer();
}

void Node::SetTimer() {
  std::optional<Instant> next = session_.deadline();
  const auto consider = [&next](const std::optional<Instant>& other) {
    if (other.has_value() && (!next.has_value() || *other < *next)) {
      next = other;
    }
  };
  consider(exit_at_);
  if (!finished_) {
    consider(leave_without_result_at_);
  }
  if (group_.alive) {
    consider(group_.kill_at);
  }
  if (!next.has_value()) {
    return;
  }
  const Time at = std::max(clock_.When(*next), world_.now());
  if (at < wakes_at_) {
    wakes_at_ = at;
    world_.At(at, What::kNodeTimer, where_.id, 0);
  }
}

void Node::Exit() {
  world_.Trace([this] { return absl::StrCat(ref_.incarnation, " exits"); });
  Die(/*power_cut=*/false);
}

// ---- what the coordinator says ----------------------------------------------

void Node::NoteStreamLost() {
  if (std::exchange(believes_connected_, false)) {
    world_.Trace([this] { return absl::StrCat(ref_.incarnation, " sees its stream end"); });
    learned_at_ = world_.now();
  }
}

void Node::On(const core::Welcome& /*welcome*/) {
  believes_connected_ = true;
  if (!has_port_) {
    has_port_ = true;
    Apply(session_.SetMasterPort(local(), world_.NextPort()));
  }
  if (outcome_.has_value()) {
    Send(*outcome_);
  }
  if (stop_signal_ != 0) {
    Send(core::StopRequested{ref_, stop_signal_, stops_alone()});
  }
  if (group_.alive && group_.phase == Phase::kStarting && state_ == State::kRunning) {
    SayWords();
  }
  if (memory_report_.has_value()) {
    Send(*memory_report_);
  }
}

void Node::On(const core::RoundStart& start) {
  if (start.round <= round_ || state_ == State::kLeaving || group_.alive) {
    if (start.round > round_ && group_.alive) {
      world_.Fail(absl::StrCat(ref_.incarnation, " has workers of round ", round_,
                               " and must start round ", start.round));
    }
    return;
  }
  round_ = start.round;
  node_rank_ = start.node_rank;
  first_rank_ = start.first_rank;
  micro_ = start.plan.has_value() ? start.plan->micro_batch_size : 0;
  memory_report_.reset();
  out_of_memory_ = false;
  parked_ = false;
  state_ = State::kRunning;
  failed_ = false;
  outcome_.reset();
  if (stop_signal_ == 0) {
    StartWorkers(start);
  }
}

void Node::On(const core::RoundStop& stop) {
  const bool known = stop.round == round_ && state_ == State::kStopping;
  if (stop.round < round_ || known || state_ == State::kLeaving) {
    return;
  }
  round_ = stop.round;
  state_ = State::kStopping;
  if (stop.reason == core::Reason::kOutOfMemory) {
    world_.Count(Tally::kMemoryRestart);
  }
  if (group_.alive) {
    StopWorkers();
  } else {
    idle_unseen_ = true;
  }
}

void Node::On(const core::JobDone& done) {
  if (!finished_) {
    job_done_ = true;
    world_.Count(Tally::kDone, done.reason);
  }
  Finish();
}

void Node::On(const core::Rejected& rejected) {
  world_.Count(Tally::kRejected, rejected.reason);
  LosePlace();
}

void Node::On(const core::Spare& /*spare*/) {
  parked_ = true;
  world_.Count(Tally::kSpare);
}

void Node::On(const core::KeyValue& key) {
  if (key.round != round_ || state_ != State::kRunning) {
    return;
  }
  if (key.value != KeyOf(round_)) {
    world_.Fail(absl::StrCat(ref_.incarnation, " got the key of another round"));
  }
  if (group_.alive && group_.phase == Phase::kStarting && !group_.barrier_reached) {
    group_.barrier_reached = true;
    Send(core::BarrierReached{ref_, round_, kBarrier});
  }
}

void Node::On(const core::BarrierDone& barrier) {
  if (barrier.round == round_ && group_.alive && group_.phase == Phase::kStarting) {
    RunWorkers();
  }
}

// ---- the workers ------------------------------------------------------------

void Node::StartWorkers(const core::RoundStart& start) {
  const std::uint64_t number = group_.number + 1;
  group_ = Group{};
  group_.number = number;
  group_.alive = true;
  group_.unkillable = world_.faulty() && world_.dice().Chance(world_.scenario().unkillable_percent);
  world_.WorkersBegin(*this, start);
  if (world_.scenario().with_words) {
    group_.phase = Phase::kStarting;
    SayWords();
  } else {
    RunWorkers();
  }
}

void Node::SayWords() {
  if (node_rank_ == 0) {
    Send(core::KeyWritten{ref_, round_, "id", KeyOf(round_)});
  }
  Send(core::KeyWanted{ref_, round_, "id"});
  plan::Request request;
  request.micro_batch_size = 4;
  Send(core::PlanProposed{ref_, round_, request});
  if (group_.barrier_reached) {
    Send(core::BarrierReached{ref_, round_, kBarrier});
  }
}

void Node::RunWorkers() {
  group_.phase = Phase::kRunning;
  if (world_.scenario().memory_is_reported && LacksMemory() && world_.dice().Chance(70)) {
    ReportOutOfMemory();
    return;
  }
  const auto longest =
      std::chrono::duration_cast<std::chrono::milliseconds>(world_.scenario().longest_run);
  world_.At(world_.now() + world_.dice().Ms(50, longest.count()), What::kWorkers, where_.id,
            group_.number * 2 + static_cast<std::uint64_t>(Fate::kEnd));
}

void Node::WorkersWillBeGone(Duration after) {
  if (group_.unkillable) {
    after = world_.dice().Ms(8'000, 20'000);
    world_.census().MarkUnkillable(where_.id);
  }
  world_.At(world_.now() + after, What::kWorkers, where_.id,
            group_.number * 2 + static_cast<std::uint64_t>(Fate::kGone));
}

void Node::StopWorkers() {
  if (!group_.alive || group_.stopping) {
    return;
  }
  group_.stopping = true;
  if (!group_.unkillable && world_.dice().Chance(15)) {  // they ignore SIGTERM
    group_.kill_at = local() + hello_.stop_grace;
    return;
  }
  const auto grace =
      std::chrono::duration_cast<std::chrono::milliseconds>(hello_.stop_grace).count();
  WorkersWillBeGone(world_.dice().Ms(1, world_.dice().Chance(70) ? grace / 8 : grace));
}

void Node::KillWorkers() {
  if (group_.alive) {
    WorkersWillBeGone(world_.dice().Ms(0, 20));
  }
}

void Node::OnLease() {
  if (lease_wakes_at_ == world_.now()) {
    lease_wakes_at_ = kNever;
  }
  if (!alive_ || !group_.alive || group_.lease_passed) {
    return;
  }
  if (world_.now() < lease_at_) {
    if (lease_at_ < lease_wakes_at_) {
      lease_wakes_at_ = lease_at_;
      world_.At(lease_at_, What::kLease, where_.id, 0);
    }
    return;
  }
  world_.Trace([this] { return absl::StrCat("the lease of ", ref_.incarnation, " has passed"); });
  world_.Count(Tally::kLeasePassed);
  group_.lease_passed = true;
  KillWorkers();
}

void Node::OnWorkers(std::uint64_t what) {
  if (!group_.alive || what / 2 != group_.number) {
    return;
  }
  const bool by_themselves = static_cast<Fate>(what % 2) == Fate::kEnd;
  if (by_themselves && (group_.phase != Phase::kRunning || group_.stopping)) {
    return;
  }
  if (by_themselves && memory_report_.has_value()) {
    return;  // it waits, and begins again
  }
  out_of_memory_ = by_themselves && !world_.scenario().memory_is_reported && LacksMemory();
  if (by_themselves &&
      (out_of_memory_ ||
       (world_.faulty() && world_.dice().Chance(world_.scenario().worker_fails_percent)))) {
    world_.Count(Tally::kWorkerFailed);
    group_.phase = Phase::kFailed;
    failed_ = true;
    failure_unseen_ = true;
    if (world_.dice().Chance(60)) {  // the others hang in a collective
      if (alive_ && !frozen()) {
        Settle();
      }
      return;
    }
  }
  group_.alive = false;
  world_.census().End(where_.id);
  idle_unseen_ = true;
  if (alive_ && !frozen()) {
    Settle();
  }
}

void Node::NoticeFailure() {
  if (state_ == State::kRunning && stop_signal_ == 0) {
    core::WorkerFailure failure;
    failure.rank = node_rank_;
    failure.exit_code = 1 + static_cast<std::int32_t>(where_.id % 250);
    failure.out_of_memory = out_of_memory_;
    if (out_of_memory_ && world_.dice().Chance(50)) {
      failure.micro_batch_size = micro_;
    }
    failure.blames_peer = !out_of_memory_ && world_.dice().Chance(50);
    // What was written to a file lies back longer than what is known by the exit.
    const Duration age = world_.dice().Chance(50) ? Duration::zero() : world_.dice().Ms(0, 3'000);
    Report(core::WorkerFailed{ref_, round_, failure, age});
  }
}

void Node::NoticeIdle() {
  if (state_ == State::kRunning && group_.lease_passed) {
    state_ = State::kStopping;
  }
  if (state_ == State::kRunning && !failed_ && stop_signal_ == 0) {
    Report(core::WorkersSucceeded{ref_, round_});
  } else if (state_ == State::kStopping) {
    Apply(session_.SetMasterPort(local(), world_.NextPort()));
    Report(core::RoundStopped{ref_, round_});
  }
}

void Node::LosePlace() {
  KillWorkers();
  Finish();
}

void Node::Finish() {
  if (finished_) {
    return;
  }
  finished_ = true;
  state_ = State::kLeaving;
  StopWorkers();
}

}  // namespace ddl::sim
