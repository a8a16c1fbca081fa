// Any order of any events, with hostile numbers, into the rendezvous core: a few
// agents of a few jobs, timers and the store's answers as the core asked for
// them and as it never did. The core must keep its promises to the agents
// (rendezvous.h) whatever it is told; its own checks (DDL_CHECK) stay silent.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/job.h"
#include "agent/core/rendezvous.h"
#include "agent/core/types.h"
#include "agent/plan/plan.h"

namespace ddl::core {
namespace {

constexpr int kMaxEvents = 400;
constexpr std::size_t kMaxHostileBytes = 300;  // longer than most limits
constexpr std::size_t kLargeValueBytes = std::size_t{100} << 10U;

void Require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "core_fuzz: broken promise: %s\n", what);
    std::abort();
  }
}

// ---- what the core promised ------------------------------------------------------

// One life of a job id, from its first agent to its result.
struct Life {
  std::int64_t round = 0;  // that started last
  // Of that round: what each node rank was told first, and whom that was.
  std::map<std::int32_t, std::pair<AgentRef, RoundStart>> starts;
  std::optional<JobDone> result;
};

bool SameRound(const RoundStart& a, const RoundStart& b) {
  return a.restart_count == b.restart_count && a.max_restarts == b.max_restarts &&
         a.num_nodes == b.num_nodes && a.world_size == b.world_size &&
         a.master_addr == b.master_addr && a.master_port == b.master_port && a.plan == b.plan &&
         a.plan_request == b.plan_request;
}

class Promises {
 public:
  explicit Promises(const Rendezvous& core) : core_(core) {}

  void BeforeStep(const Event& event);
  void AfterStep(Instant now, const Event& event, const Effects& effects);

 private:
  void On(const Reply& reply);
  void On(const AgentRef& agent, Life& life, const RoundStart& start);
  void CheckWhole(const Life& life);

  const Rendezvous& core_;
  std::int64_t last_sequence_ = 0;
  std::map<AgentRef, std::size_t> life_of_;  // who was welcomed, into which life
  std::vector<AgentRef> said_hello_;
  std::vector<Life> lives_;
  std::map<std::string, std::size_t> current_;  // job id -> life
  std::vector<std::size_t> changed_;            // lives whose round began in this step

  // Of the job that the event is for, before the step.
  bool job_took_in_ = false;  // it was there, and its result was not
};

const AgentConnected* AsHello(const Event& event) {
  return std::get_if<AgentConnected>(&event);
}

void Promises::BeforeStep(const Event& event) {
  if (const AgentConnected* const hello = AsHello(event)) {
    said_hello_.push_back(hello->agent);
    const Job* const job = core_.FindJob(hello->agent.job_id);
    job_took_in_ = job != nullptr && !job->result().has_value();
  }
}

void Promises::AfterStep(Instant now, const Event& event, const Effects& effects) {
  changed_.clear();
  if (const AgentConnected* const hello = AsHello(event)) {
    const bool welcomed = std::any_of(effects.begin(), effects.end(), [](const Effect& effect) {
      const auto* const reply = std::get_if<Reply>(&effect);
      return reply != nullptr && std::holds_alternative<Welcome>(reply->message);
    });
    if (welcomed && !life_of_.contains(hello->agent)) {
      if (!job_took_in_) {
        current_[hello->agent.job_id] = lives_.size();
        lives_.emplace_back();
      }
      life_of_[hello->agent] = current_.at(hello->agent.job_id);
    }
  }
  for (const Effect& effect : effects) {
    if (const auto* const reply = std::get_if<Reply>(&effect)) {
      On(*reply);
    } else if (const auto* const persist = std::get_if<Persist>(&effect)) {
      Require(persist->sequence > last_sequence_, "sequence numbers grow");
      Require(persist->round >= 0, "a round number is not negative");
      last_sequence_ = persist->sequence;
    } else if (const auto* const arm = std::get_if<ArmTimer>(&effect)) {
      Require(arm->deadline >= now, "no timer is armed for the past");
    }
  }
  for (const std::size_t life : changed_) {
    CheckWhole(lives_[life]);
  }
}

void Promises::On(const Reply& reply) {
  Require(std::find(said_hello_.begin(), said_hello_.end(), reply.agent) != said_hello_.end(),
          "only who has said Hello is spoken to");
  const auto found = life_of_.find(reply.agent);
  if (std::holds_alternative<Rejected>(reply.message)) {
    return;
  }
  Require(found != life_of_.end(), "who was not welcomed is told nothing but why");
  Life& life = lives_[found->second];
  if (const auto* const start = std::get_if<RoundStart>(&reply.message)) {
    if (start->round != life.round) {
      changed_.push_back(found->second);
    }
    On(reply.agent, life, *start);
  } else if (const auto* const done = std::get_if<JobDone>(&reply.message)) {
    const bool same = !life.result.has_value() || (life.result->reason == done->reason &&
                                                   life.result->exit_code == done->exit_code &&
                                                   life.result->text == done->text);
    Require(same, "a job has one result");
    life.result = *done;
  }
}

void Promises::On(const AgentRef& agent, Life& life, const RoundStart& start) {
  Require(!life.result.has_value(), "no round starts after the result");
  Require(start.round >= life.round && start.round > 0, "round numbers grow");
  Require(start.first_rank >= 0 && start.nproc > 0 && start.node_rank >= 0 &&
              start.node_rank < start.num_nodes && start.restart_count >= 0,
          "a round's numbers make sense");
  if (start.round > life.round) {
    life.round = start.round;
    life.starts.clear();
  }
  const auto [it, is_new] = life.starts.try_emplace(start.node_rank, std::pair(agent, start));
  const auto& [owner, first_told] = it->second;
  Require(is_new || (owner == agent && first_told.first_rank == start.first_rank &&
                     first_told.nproc == start.nproc),
          "a rank has one owner, who is told the same again");
  Require(SameRound(life.starts.begin()->second.second, start),
          "every member is told the same round");
}

// A round that began in this step was told to all its members.
void Promises::CheckWhole(const Life& life) {
  std::int64_t next_rank = 0;
  std::int32_t next_node = 0;
  for (const auto& [node_rank, told] : life.starts) {
    Require(node_rank == next_node++, "node ranks are contiguous");
    Require(told.second.first_rank == next_rank, "ranks are contiguous, each given once");
    next_rank += told.second.nproc;
  }
  const RoundStart& start = life.starts.begin()->second.second;
  Require(next_node == start.num_nodes && next_rank == start.world_size,
          "a round has all its nodes and ranks");
}

// ---- what the core is told -------------------------------------------------------

class Play {
 public:
  explicit Play(FuzzedDataProvider& data)
      : data_(data), core_(MakeOptions(data)), promises_(core_), slow_store_(data.ConsumeBool()) {}

  void Run() {
    for (int i = 0; i < kMaxEvents && data_.remaining_bytes() > 0; ++i) {
      now_ += std::chrono::milliseconds(data_.ConsumeIntegral<std::uint8_t>());
      Give(NextEvent());
    }
  }

 private:
  static Options MakeOptions(FuzzedDataProvider& data) {
    Options options;
    if (data.ConsumeBool()) {
      options.only_job = "a";
    }
    return options;
  }

  template <typename T, std::size_t N>
  T Pick(const std::array<T, N>& choices) {
    return choices[data_.ConsumeIntegralInRange<std::size_t>(0, N - 1)];
  }
  bool Seldom() { return data_.ConsumeIntegral<std::uint8_t>() < 8; }

  template <typename Number>
  Number AnyNumber() {
    using Limits = std::numeric_limits<Number>;
    return Pick(
        std::array<Number, 5>{Limits::min(), Limits::max(), 0, 1, data_.ConsumeIntegral<Number>()});
  }
  Duration AnyDuration() { return Duration(AnyNumber<std::int64_t>()); }
  std::string AnyText() {
    if (Seldom()) {
      return std::string(kLargeValueBytes, 'x');
    }
    return data_.ConsumeRandomLengthString(kMaxHostileBytes);
  }

  // Few agents, so that they meet; one byte names both.
  AgentRef AnyAgent() {
    constexpr int kJobs = 2;
    constexpr int kAgents = 4;
    constexpr int kKnown = 248;
    const int byte = data_.ConsumeIntegral<std::uint8_t>();
    if (byte >= kKnown) {
      return {AnyText(), AnyText()};
    }
    return {std::string(1, static_cast<char>('a' + byte % kJobs)),
            std::string(1, static_cast<char>('0' + byte / kJobs % kAgents))};
  }
  std::int64_t AnyRound(const std::string& job_id) {
    const Job* const job = core_.FindJob(job_id);
    if (job == nullptr || Seldom()) {
      return AnyNumber<std::int64_t>();
    }
    return job->round().has_value() ? job->round()->number : job->last_round();
  }

  plan::Request AnyPlan();
  AgentConnected AnyHello();
  WorkerFailure AnyFailure();
  Event WordOfRound(int kind);
  Event NextEvent();
  Event NextTimer();
  Event NextStoreDone();
  void Give(const Event& event);

  FuzzedDataProvider& data_;
  Rendezvous core_;
  Promises promises_;
  const bool slow_store_;  // it answers when the fuzzer says so; else at once
  Instant now_{};
  std::map<TimerId, Instant> timers_;
  std::vector<StoreDone> to_store_;
};

plan::Request Play::AnyPlan() {
  plan::Request request;
  const auto maybe = [this](std::optional<std::int64_t>& field) {
    if (data_.ConsumeBool()) {
      field = Seldom() ? AnyNumber<std::int64_t>() : data_.ConsumeIntegralInRange(1, 16);
    }
  };
  maybe(request.global_batch_size);
  maybe(request.micro_batch_size);
  maybe(request.max_micro_batch_size);
  maybe(request.min_micro_batch_size);
  maybe(request.grad_accum_steps);
  maybe(request.base_batch_size);
  maybe(request.warmup_steps);
  if (data_.ConsumeBool()) {
    request.batch_policy = Pick(std::array{plan::BatchPolicy::kFail, plan::BatchPolicy::kNearest,
                                           plan::BatchPolicy::kExact});
  }
  if (data_.ConsumeBool()) {
    using Limits = std::numeric_limits<double>;
    request.base_lr =
        Pick(std::array{0.1, 0.0, -1.0, Limits::quiet_NaN(), Limits::infinity(), Limits::max()});
    request.lr_scaling = plan::LrScaling::kLinear;
  }
  return request;
}

// Job "a" has two nodes, "b" one to three.
AgentConnected Play::AnyHello() {
  AgentConnected hello;
  hello.agent = AnyAgent();
  const bool elastic = hello.agent.job_id == "b";
  hello.host = "host" + hello.agent.incarnation;
  hello.address = "10.0.0.1";
  hello.nproc = 2;
  hello.min_nodes = elastic ? 1 : 2;
  hello.max_nodes = elastic ? 3 : 2;
  hello.max_restarts = 1;
  hello.join_timeout = std::chrono::seconds(20);
  hello.last_call_timeout = std::chrono::seconds(2);
  hello.stop_grace = std::chrono::seconds(3);
  hello.master_port = 4000;
  if (hello.agent.job_id == "a") {
    hello.worker_ports = {5000, 5001};
  }
  if (elastic) {
    hello.plan.global_batch_size = 24;
  }
  if (data_.ConsumeBool()) {
    return hello;
  }
  switch (data_.ConsumeIntegralInRange(0, 11)) {
    case 0:
      hello.host = AnyText();
      break;
    case 1:
      hello.address = AnyText();
      break;
    case 2:
      hello.nproc = data_.ConsumeBool() ? AnyNumber<std::int32_t>() : 3;
      break;
    case 3:
      hello.min_nodes = AnyNumber<std::int32_t>();
      hello.max_nodes = AnyNumber<std::int32_t>();
      break;
    case 4:
      hello.max_restarts = AnyNumber<std::int32_t>();
      break;
    case 5:
      hello.join_timeout = AnyDuration();
      break;
    case 6:
      hello.last_call_timeout = AnyDuration();
      hello.stop_grace = AnyDuration();
      break;
    case 7:
      hello.master_port = data_.ConsumeBool() ? AnyNumber<std::uint32_t>() : 0;
      break;
    case 8:
      hello.node_rank = data_.ConsumeBool() ? AnyNumber<std::int32_t>()
                                            : data_.ConsumeIntegralInRange<std::int32_t>(0, 2);
      break;
    case 9:
      hello.last_round = data_.ConsumeBool() ? AnyNumber<std::int64_t>()
                                             : data_.ConsumeIntegralInRange<std::int64_t>(1, 9);
      hello.restart_count = data_.ConsumeBool() ? AnyNumber<std::int32_t>() : 1;
      hello.last_plan = {AnyPlan(), data_.ConsumeBool()
                                        ? AnyNumber<std::int64_t>()
                                        : data_.ConsumeIntegralInRange<std::int64_t>(0, 8)};
      hello.last_plan.request.learned_max_micro_batch_size =
          data_.ConsumeBool() ? AnyNumber<std::int64_t>()
                              : data_.ConsumeIntegralInRange<std::int64_t>(0, 8);
      break;
    case 10:
      hello.worker_ports.assign(data_.ConsumeIntegralInRange<std::size_t>(0, 3),
                                AnyNumber<std::uint32_t>());
      break;
    default:
      hello.plan = AnyPlan();
      break;
  }
  return hello;
}

WorkerFailure Play::AnyFailure() {
  WorkerFailure failure;
  failure.rank = AnyNumber<std::int32_t>();
  failure.local_rank = AnyNumber<std::int32_t>();
  failure.exit_code = AnyNumber<std::int32_t>();
  failure.term_signal = AnyNumber<std::int32_t>();
  failure.blames_peer = data_.ConsumeBool();
  failure.out_of_memory = data_.ConsumeBool();
  failure.host = Seldom() ? AnyText() : "";
  failure.error_text = Seldom() ? AnyText() : "";
  return failure;
}

Event Play::WordOfRound(int kind) {
  const AgentRef agent = AnyAgent();
  const std::int64_t round = AnyRound(agent.job_id);
  const auto name = [this] { return Seldom() ? AnyText() : std::string("k"); };
  switch (kind) {
    case 0:
      return WorkerFailed{agent, round, AnyFailure(), Duration(AnyNumber<std::int64_t>())};
    case 1:
      return WorkersSucceeded{agent, round};
    case 2:
      return KeyWritten{agent, round, name(), name()};
    case 3:
      return KeyWanted{agent, round, name()};
    case 4:
      return BarrierReached{agent, round, name()};
    case 5:
      return PlanProposed{agent, round, AnyPlan()};
    case 6: {
      const auto rank =
          Seldom() ? AnyNumber<std::int32_t>() : data_.ConsumeIntegralInRange<std::int32_t>(0, 5);
      const auto micro =
          Seldom() ? AnyNumber<std::int64_t>() : data_.ConsumeIntegralInRange<std::int64_t>(1, 12);
      return OutOfMemory{agent, round, rank, micro, AnyNumber<std::int64_t>(), ""};
    }
    default:
      return RoundStopped{agent, round};
  }
}

Event Play::NextTimer() {
  if (!timers_.empty() && !Seldom()) {
    auto it = timers_.begin();
    std::advance(it, data_.ConsumeIntegralInRange<std::size_t>(0, timers_.size() - 1));
    const TimerId id = it->first;
    now_ = std::max(now_, it->second);
    timers_.erase(it);
    return TimerFired{id};
  }
  const TimerKind kind =
      Pick(std::array{TimerKind::kHeartbeat, TimerKind::kReconnect, TimerKind::kJoin,
                      TimerKind::kStop, TimerKind::kLastCall, TimerKind::kForget});
  const AgentRef agent = AnyAgent();
  return TimerFired{TimerId{kind, agent.job_id, data_.ConsumeBool() ? agent.incarnation : ""}};
}

Event Play::NextStoreDone() {
  if (!to_store_.empty() && !Seldom()) {
    StoreDone done = to_store_.back();
    if (!Seldom()) {  // else it comes twice
      to_store_.pop_back();
    }
    return done;
  }
  return StoreDone{AnyAgent().job_id, AnyNumber<std::int64_t>()};
}

Event Play::NextEvent() {
  enum { kHello, kHeard, kDisconnected, kLeft, kStop, kTimer, kStore, kWord };
  // As often as it takes for rounds to start and to end.
  constexpr std::array kWeighted = {kHello, kHello, kHello, kHello, kHeard, kHeard,
                                    kLeft,  kStop,  kTimer, kTimer, kTimer, kDisconnected,
                                    kStore, kWord,  kWord,  kWord,  kWord,  kWord};
  switch (Pick(kWeighted)) {
    case kHello:
      return AnyHello();
    case kHeard:
      return AgentHeard{AnyAgent(), Seldom() ? AnyNumber<std::uint32_t>() : 4001U};
    case kDisconnected:
      return AgentDisconnected{AnyAgent()};
    case kLeft:
      return AgentLeft{AnyAgent(), Seldom() ? AnyText() : ""};
    case kStop:
      return StopRequested{AnyAgent(), AnyNumber<std::int32_t>(), data_.ConsumeBool()};
    case kTimer:
      return NextTimer();
    case kStore:
      return NextStoreDone();
    case kWord:
      break;
  }
  constexpr int kMaxKind = 10;  // most often a stop: without them no round ends
  return WordOfRound(data_.ConsumeIntegralInRange(0, kMaxKind));
}

void Play::Give(const Event& event) {
  promises_.BeforeStep(event);
  const Effects effects = core_.Step(now_, event);
  promises_.AfterStep(now_, event, effects);
  std::vector<StoreDone> stored;
  for (const Effect& effect : effects) {
    if (const auto* const persist = std::get_if<Persist>(&effect)) {
      auto& answers = slow_store_ ? to_store_ : stored;
      answers.push_back(StoreDone{persist->job_id, persist->sequence});
    } else if (const auto* const arm = std::get_if<ArmTimer>(&effect)) {
      timers_[arm->id] = arm->deadline;
    }
  }
  for (const StoreDone& done : stored) {
    Give(done);
  }
}

}  // namespace
}  // namespace ddl::core

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider provider(data, size);
  ddl::core::Play(provider).Run();
  return 0;
}
