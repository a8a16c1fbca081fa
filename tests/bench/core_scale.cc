// How the rendezvous core scales: one job of N simulated nodes on one thread,
// without gRPC: they join, beat, lose a node, form again with its replacement,
// succeed and leave. Prints, for each phase, the processor time of the core
// and of the driver that feeds it, and the core's memory for each node.
//   core_scale [NODES...]     default: 25000 50000 100000
// Time for an event that grows with N is a quadratic algorithm. Exits 1 when a
// round is not what it must be: that is what CTest looks at, never the times.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/rendezvous.h"
#include "agent/core/types.h"

namespace ddl::core {
namespace {

constexpr std::int32_t kWorkersPerNode = 8;
constexpr char kJob[] = "train-large";
constexpr int kBeats = 10;
constexpr std::size_t kIncarnationChars = 32;  // as agent/base/ids.h makes them

void Require(bool holds, const char* what) {
  if (!holds) {
    std::printf("core_scale: FAILED: %s\n", what);
    std::exit(1);
  }
}

double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  constexpr double kNanosecond = 1e-9;
  return static_cast<double>(now.tv_sec) + kNanosecond * static_cast<double>(now.tv_nsec);
}

std::size_t HeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The number of a node is the tail of its incarnation, whose head differs.
std::string IncarnationOf(std::size_t node) {
  const std::string number = std::to_string(node);
  std::string incarnation = std::to_string(node * 0x9E3779B97F4A7C15U) + "abcdefabcdefabcdef";
  incarnation.resize(kIncarnationChars - number.size() - 1);
  return incarnation + "-" + number;
}
std::size_t NodeOf(const std::string& incarnation) {
  return std::strtoul(incarnation.c_str() + incarnation.rfind('-') + 1, nullptr, 10);
}

// What a node has been told, as far as the outcome needs it.
struct Node {
  Instant heartbeat_at = Instant::max();
  Instant reconnect_at = Instant::max();
  std::int64_t round = 0;
  std::int32_t first_rank = -1;
  std::int32_t world_size = 0;
  bool stop = false;
  bool done = false;
};

class Scale {
 public:
  // One more node than the job holds: the replacement.
  explicit Scale(std::size_t num_nodes) : num_nodes_(num_nodes), nodes_(num_nodes + 1) {}

  void Run();

 private:
  // One node's word.
  void Give(const Event& event);
  // Moves the clock, firing what comes due.
  void Pass(Duration duration);
  void FireDue();
  void Beat();
  void CheckRound(std::int64_t round, std::size_t missing) const;
  void Phase(const char* name);

  void On(const Persist& effect) { stored_.push_back(StoreDone{effect.job_id, effect.sequence}); }
  void On(const Reply& effect);
  void On(const ArmTimer& effect);
  void On(const Explain& /*effect*/) {}

  AgentRef Ref(std::size_t node) const { return AgentRef{kJob, IncarnationOf(node)}; }
  AgentConnected Hello(std::size_t node) const;
  [[nodiscard]] bool IsLost(std::size_t node) const { return node == num_nodes_ / 2; }

  const std::size_t num_nodes_;
  std::vector<Node> nodes_;
  Rendezvous core_{Options()};
  Instant now_{};
  std::deque<StoreDone> stored_;
  std::map<TimerKind, Instant> job_timers_;

  std::size_t num_events_ = 0;
  std::size_t num_replies_ = 0;
  std::size_t heap_before_ = HeapBytes();
  double phase_began_ = ThreadSeconds();
  double total_ = 0;
};

AgentConnected Scale::Hello(std::size_t node) const {
  AgentConnected hello;
  hello.agent = Ref(node);
  hello.host = "node" + std::to_string(node) + ".cluster.example";
  hello.address = "10." + std::to_string(node / 65536 % 256) + "." +
                  std::to_string(node / 256 % 256) + "." + std::to_string(node % 256);
  hello.nproc = kWorkersPerNode;
  hello.min_nodes = static_cast<std::int32_t>(num_nodes_);
  hello.max_nodes = static_cast<std::int32_t>(num_nodes_);
  hello.join_timeout = std::chrono::minutes(10);
  hello.stop_grace = std::chrono::seconds(30);
  hello.master_port = 29500;
  return hello;
}

void Scale::Give(const Event& event) {
  ++num_events_;
  for (const Effect& effect : core_.Step(now_, event)) {
    std::visit([this](const auto& one) { On(one); }, effect);
  }
  while (!stored_.empty()) {
    const StoreDone done = stored_.front();
    stored_.pop_front();
    Give(done);
  }
}

void Scale::On(const Reply& effect) {
  ++num_replies_;
  Node& node = nodes_[NodeOf(effect.agent.incarnation)];
  if (const auto* start = std::get_if<RoundStart>(&effect.message)) {
    node.round = start->round;
    node.first_rank = start->first_rank;
    node.world_size = start->world_size;
    node.stop = false;
  } else if (std::holds_alternative<RoundStop>(effect.message)) {
    node.stop = true;
  } else if (std::holds_alternative<JobDone>(effect.message)) {
    node.done = true;
  }
  Require(!std::holds_alternative<Rejected>(effect.message), "nobody is refused");
}

void Scale::On(const ArmTimer& effect) {
  switch (effect.id.kind) {
    case TimerKind::kHeartbeat:
      nodes_[NodeOf(effect.id.subject)].heartbeat_at = effect.deadline;
      return;
    case TimerKind::kReconnect:
      nodes_[NodeOf(effect.id.subject)].reconnect_at = effect.deadline;
      return;
    default:
      job_timers_[effect.id.kind] = effect.deadline;
      return;
  }
}

void Scale::FireDue() {
  const auto fire = [this](TimerKind kind, std::size_t node, Instant& deadline) {
    if (deadline <= now_) {
      deadline = Instant::max();
      Give(TimerFired{TimerId{kind, kJob, IncarnationOf(node)}});
    }
  };
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    fire(TimerKind::kHeartbeat, node, nodes_[node].heartbeat_at);
    fire(TimerKind::kReconnect, node, nodes_[node].reconnect_at);
  }
  for (const auto& [kind, deadline] : std::map<TimerKind, Instant>(job_timers_)) {
    if (deadline <= now_) {
      job_timers_.erase(kind);
      Give(TimerFired{TimerId{kind, kJob, ""}});
    }
  }
}

void Scale::Pass(Duration duration) {
  now_ += duration;
  FireDue();
}

void Scale::Beat() {
  for (std::size_t node = 0; node < num_nodes_; ++node) {
    Give(AgentHeard{Ref(node), 0});
  }
  Pass(std::chrono::seconds(1));
}

// All but `missing` are in it, their ranks are 0..world-1, each once.
void Scale::CheckRound(std::int64_t round, std::size_t missing) const {
  std::vector<bool> taken(num_nodes_, false);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (node == missing) {
      continue;
    }
    const Node& told = nodes_[node];
    Require(told.round == round, "every member was told the round");
    Require(static_cast<std::size_t>(told.world_size) == num_nodes_ * kWorkersPerNode,
            "the world has 8 ranks a node");
    Require(told.first_rank >= 0 && told.first_rank % kWorkersPerNode == 0, "ranks are contiguous");
    const auto place = static_cast<std::size_t>(told.first_rank / kWorkersPerNode);
    Require(place < num_nodes_ && !taken[place], "each rank is given once");
    taken[place] = true;
  }
}

void Scale::Phase(const char* name) {
  const double seconds = ThreadSeconds() - phase_began_;
  total_ += seconds;
  constexpr double kMicro = 1e6;
  std::printf("%8zu  %-34s %8.3f s %9zu events %9zu replies %8.2f us/event\n", num_nodes_, name,
              seconds, num_events_, num_replies_,
              num_events_ == 0 ? 0.0 : kMicro * seconds / static_cast<double>(num_events_));
  num_events_ = 0;
  num_replies_ = 0;
  phase_began_ = ThreadSeconds();
}

void Scale::Run() {
  const std::size_t replacement = num_nodes_;
  const std::size_t lost = num_nodes_ / 2;
  for (std::size_t node = 0; node + 1 < num_nodes_; ++node) {
    Give(Hello(node));
  }
  Phase("join");
  Give(Hello(num_nodes_ - 1));
  CheckRound(1, replacement);
  Phase("the last node joins: round 1");
  const std::size_t heap = HeapBytes() - heap_before_;
  for (int beat = 0; beat < kBeats; ++beat) {
    Beat();
  }
  Phase("10 s of heartbeats");

  Give(AgentDisconnected{Ref(lost)});
  Pass(std::chrono::seconds(1));
  Require(std::all_of(nodes_.begin(), nodes_.end(),
                      [&](const Node& node) {
                        const auto index = static_cast<std::size_t>(&node - nodes_.data());
                        return node.stop || index == lost || index == replacement;
                      }),
          "every survivor is told to stop");
  Phase("a node is lost: all stop");
  for (std::size_t node = 0; node < num_nodes_; ++node) {
    if (!IsLost(node)) {
      Give(RoundStopped{Ref(node), 1});
    }
  }
  Phase("all have stopped");
  Give(Hello(replacement));
  CheckRound(2, lost);
  Phase("a replacement joins: round 2");

  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (!IsLost(node)) {
      Give(WorkersSucceeded{Ref(node), 2});
    }
  }
  Require(nodes_.front().done && nodes_.back().done, "every member is told that the job is done");
  Phase("all succeed");
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (!IsLost(node)) {
      Give(AgentLeft{Ref(node), "done"});
    }
  }
  Require(core_.num_jobs() == 0, "the job is forgotten");
  Phase("all leave");
  std::printf("%8zu  in all %.3f s; %zu ranks in each round; %zu bytes a node while it runs\n\n",
              num_nodes_, total_, num_nodes_ * kWorkersPerNode, heap / num_nodes_);
}

}  // namespace
}  // namespace ddl::core

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) {
    sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  }
  if (sizes.empty()) {
    sizes = {25'000, 50'000, 100'000};
  }
  for (const std::size_t size : sizes) {
    ddl::core::Require(size >= 2, "a job of two nodes or more");
    ddl::core::Scale(size).Run();
  }
  return 0;
}
