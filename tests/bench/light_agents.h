// LightAgents: many agents of one job in one process, each with a stream of its
// own over raw gRPC, for rendezvous_bench. They join, beat, succeed and leave;
// they start no workers, and never reconnect once they were welcomed.
//
// One instance a process. Thread safe.
#ifndef DDLAUNCH_TESTS_BENCH_LIGHT_AGENTS_H_
#define DDLAUNCH_TESTS_BENCH_LIGHT_AGENTS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/base/clock.h"

namespace ddl::bench {

class LightAgent;  // light_agents.cc

struct LightAgentsOptions {
  std::string endpoint;
  std::size_t first = 0;  // number of the first agent, of `total` of the job
  std::size_t count = 0;
  std::size_t total = 0;
  std::size_t streams_per_connection = 1;
};

class LightAgents {
 public:
  explicit LightAgents(LightAgentsOptions options);
  ~LightAgents();
  LightAgents(const LightAgents&) = delete;
  LightAgents& operator=(const LightAgents&) = delete;

  struct Formed {
    Instant first_opened;  // the first agent began to connect
    Instant last_joined;   // gRPC took the last Hello for sending: it is connected
    Instant last_started;  // the last RoundStart came
    std::int64_t node_rank_sum = 0;
  };
  // Opens every stream, and from the Welcome on beats once a second, until
  // Finish. Returns when each agent was told of the round. UNAVAILABLE: a
  // stream ended.
  absl::Status Join(Formed& formed);

  struct Beats {
    std::int64_t answered = 0;  // HeartbeatAck
    std::int64_t skipped = 0;   // the one before was still being sent
  };
  [[nodiscard]] Beats beats() const { return {answered_, skipped_}; }

  // Every agent succeeds, hears of the job's end, and leaves. The time when the
  // last heard of it.
  absl::Status Finish(Instant& last_done);

 private:
  friend class LightAgent;
  // Told by the agents' streams.
  void Joined();
  void Started(std::int64_t round, std::int64_t node_rank);
  void JobIsDone();
  void TryAgain(LightAgent& agent);
  void Ended(const std::string& error);  // empty: after its goodbye

  void CountLocked(std::size_t& counter);
  void BeatUntilStopped();
  // Agents that are to open their stream again.
  std::vector<LightAgent*> TakeDue();
  // Waits until `counter` is every agent, or a stream has ended too early.
  absl::Status AwaitAll(const std::size_t& counter);

  const LightAgentsOptions options_;
  std::vector<std::unique_ptr<LightAgent>> agents_;
  std::atomic<std::int64_t> answered_ = 0;
  std::atomic<std::int64_t> skipped_ = 0;
  std::atomic<bool> stop_beating_ = false;
  std::thread beating_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Formed formed_;
  Instant last_done_;
  std::size_t num_started_ = 0;
  std::size_t num_done_ = 0;
  std::size_t num_ended_ = 0;
  std::deque<std::pair<Instant, LightAgent*>> to_open_;  // by time
  std::string error_;
};

}  // namespace ddl::bench

#endif  // DDLAUNCH_TESTS_BENCH_LIGHT_AGENTS_H_
