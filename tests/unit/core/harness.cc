// What tests of one job share.
#include "tests/unit/core/harness.h"

#include <algorithm>

namespace ddl::core {
namespace {

constexpr std::uint32_t kFirstPort = 5000;

}  // namespace

AgentConnected Harness::Hello(const std::string& name, std::int32_t nodes,
                              std::int32_t max_restarts) {
  AgentConnected hello;
  hello.agent = Ref(name);
  hello.host = "host-" + name;
  hello.address = "addr-" + name;
  hello.nproc = 2;
  hello.min_nodes = nodes;
  hello.max_nodes = nodes;
  hello.max_restarts = max_restarts;
  hello.join_timeout = 60 * kSecond;
  hello.stop_grace = 10 * kSecond;
  return hello;
}

void Harness::Give(const Event& event) {
  std::vector<StoreDone> stored;
  for (Effect& effect : rendezvous_.Step(now_, event)) {
    if (auto* const persist = std::get_if<Persist>(&effect)) {
      persists_.push_back(*persist);
      stored.push_back(StoreDone{persist->job_id, persist->sequence});
    } else if (auto* const reply = std::get_if<Reply>(&effect)) {
      replies_.push_back(std::move(*reply));
    } else if (auto* const arm = std::get_if<ArmTimer>(&effect)) {
      ASSERT_GE(arm->deadline, now_) << "a timer for the past would fire for ever";
      timers_[arm->id] = arm->deadline;
    } else if (auto* const explain = std::get_if<Explain>(&effect)) {
      explains_.push_back(std::move(*explain));
    }
  }
  if (!hold_store_) {
    for (const StoreDone& done : stored) {
      Give(done);
    }
  }
}

void Harness::Connect(const AgentConnected& hello) {
  Give(hello);
  const auto port = kFirstPort + static_cast<std::uint32_t>(hello.agent.incarnation.front());
  Give(AgentHeard{hello.agent, port});
}

void Harness::Pass(Duration duration) {
  const Instant end = now_ + duration;
  while (true) {
    const auto next =
        std::min_element(timers_.begin(), timers_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (next == timers_.end() || next->second > end) {
      break;
    }
    now_ = std::max(now_, next->second);
    const TimerId id = next->first;
    timers_.erase(next);
    Give(TimerFired{id});
  }
  now_ = end;
}

void Harness::PassAlive(Duration duration, const std::vector<std::string>& names) {
  for (Duration passed{}; passed < duration; passed += kSecond) {
    for (const std::string& name : names) {
      Give(AgentHeard{Ref(name), 0});
    }
    Pass(std::min<Duration>(kSecond, duration - passed));
  }
}

void Harness::StartJob(std::int32_t count, std::int32_t max_restarts) {
  for (std::int32_t i = 0; i < count; ++i) {
    Connect(Hello(std::string(1, static_cast<char>('a' + i)), count, max_restarts));
  }
  ASSERT_EQ(StateOfJob(), Job::State::kRunning);
  Clear();
}

void Harness::Fail(const std::string& name, std::int64_t round, std::int32_t exit_code,
                   std::int32_t term_signal) {
  WorkerFailure failure;
  failure.rank = 1;
  failure.local_rank = 1;
  failure.exit_code = exit_code;
  failure.term_signal = term_signal;
  Give(WorkerFailed{Ref(name), round, failure});
}

void Harness::Succeed(const std::string& name, std::int64_t round) {
  Give(WorkersSucceeded{Ref(name), round});
}

void Harness::Stopped(const std::string& name, std::int64_t round) {
  Give(RoundStopped{Ref(name), round});
}

void Harness::Disconnect(const std::string& name) {
  Give(AgentDisconnected{Ref(name)});
}

void Harness::Leave(const std::string& name) {
  Give(AgentLeft{Ref(name), "test"});
}

bool Harness::Said(Reason reason) const {
  return std::any_of(explains_.begin(), explains_.end(),
                     [reason](const Explain& explain) { return explain.reason == reason; });
}

std::string Harness::Saying(Reason reason) const {
  const auto it =
      std::find_if(explains_.rbegin(), explains_.rend(),
                   [reason](const Explain& explain) { return explain.reason == reason; });
  return it == explains_.rend() ? "" : it->text;
}

void Harness::Clear() {
  replies_.clear();
  explains_.clear();
  persists_.clear();
}

Job::State Harness::StateOfJob() const {
  const Job* const job = rendezvous_.FindJob(kJob);
  return job == nullptr ? Job::State::kEnded : job->state();
}

}  // namespace ddl::core
