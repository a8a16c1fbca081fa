// A world of threads for tests: one Context a rank, over a shared key store, and
// a backend that adds in rank order.
#ifndef DDLAUNCH_TESTS_UNIT_SDK_WORLD_H_
#define DDLAUNCH_TESTS_UNIT_SDK_WORLD_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ddl/backend.h"
#include "ddl/context.h"
#include "worker_sdk/src/gateway.h"
#include "worker_sdk/src/memory_gateway.h"

namespace ddl::testing {

inline Context MakeContext(std::shared_ptr<internal::Gateway> gateway, int rank, int world_size) {
  internal::Membership membership;
  membership.rank = rank;
  membership.local_rank = rank;
  membership.world_size = world_size;
  membership.local_world_size = world_size;
  return internal::ContextAccess::Make(membership, std::move(gateway), {});
}

// A gateway over memory, for tests that change one of its methods. Thread safe.
class ForwardingGateway : public internal::Gateway {
 public:
  explicit ForwardingGateway(int world_size) : memory_(world_size) {}

  absl::Status Publish(std::string_view key, std::string_view value) override {
    return memory_.Publish(key, value);
  }
  absl::StatusOr<std::string> Fetch(std::string_view key, Timeout timeout,
                                    const std::stop_token& stop) override {
    return memory_.Fetch(key, timeout, stop);
  }
  absl::Status Barrier(std::string_view name, Timeout timeout,
                       const std::stop_token& stop) override {
    return memory_.Barrier(name, timeout, stop);
  }
  absl::StatusOr<internal::AgreedPlan> AgreePlan(const PlanDefaults& defaults,
                                                 Timeout timeout) override {
    return memory_.AgreePlan(defaults, timeout);
  }
  absl::StatusOr<internal::PlanRevision> ReportOutOfMemory(
      const internal::OutOfMemoryReport& report) override {
    return memory_.ReportOutOfMemory(report);
  }
  absl::StatusOr<internal::PlanRevision> WatchPlan(int after,
                                                   const std::stop_token& stop) override {
    return memory_.WatchPlan(after, stop);
  }
  absl::Status MarkGroup(std::string_view name, bool open) override {
    return memory_.MarkGroup(name, open);
  }
  absl::Status ReportProgress(std::int64_t step, std::int64_t total_steps,
                              double samples_per_s) override {
    return memory_.ReportProgress(step, total_steps, samples_per_s);
  }

 private:
  internal::MemoryGateway memory_;
};

// Calls body(rank) in a thread for each rank and waits for all.
inline void OnEveryRank(int world_size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back(body, rank);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// What the ranks of a ThreadBackend share. Thread safe.
class Meeting {
 public:
  explicit Meeting(int world_size) : world_size_(world_size) {}

  // The last rank to come runs `all_here`; then all go on.
  void Meet(const std::function<void()>& arrive, const std::function<void()>& all_here) {
    std::unique_lock lock(mutex_);
    arrive();
    if (++arrived_ == world_size_) {
      all_here();
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&, generation = generation_] { return generation_ != generation; });
  }

  [[nodiscard]] int world_size() const { return world_size_; }
  std::vector<double> sums;      // guarded by the meeting
  std::vector<std::byte> bytes;  // guarded by the meeting
  int reductions = 0;            // guarded by the meeting

 private:
  const int world_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  int generation_ = 0;
};

class ThreadBackend final : public Backend {
 public:
  ThreadBackend(Meeting* meeting, int rank) : meeting_(meeting), rank_(rank) {}

  [[nodiscard]] std::string_view name() const override { return "threads"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return meeting_->world_size(); }
  absl::Status AllReduceSum(std::span<float> values) override { return Sum(values); }
  absl::Status AllReduceSum(std::span<double> values) override { return Sum(values); }
  absl::Status Broadcast(std::span<std::byte> bytes, int root) override {
    meeting_->Meet(
        [&] {
          if (rank_ == root) {
            meeting_->bytes.assign(bytes.begin(), bytes.end());
          }
        },
        [] {});
    std::copy(meeting_->bytes.begin(), meeting_->bytes.end(), bytes.begin());
    return Barrier();
  }
  absl::Status Barrier() override {
    meeting_->Meet([] {}, [] {});
    return absl::OkStatus();
  }
  absl::Status Reconnect() override { return Barrier(); }
  void Interrupt() override {}
  absl::Status Close() override { return Barrier(); }

 private:
  template <typename T>
  absl::Status Sum(std::span<T> values) {
    meeting_->Meet(
        [&] {
          meeting_->sums.resize(values.size());
          for (std::size_t i = 0; i < values.size(); ++i) {
            meeting_->sums[i] += static_cast<double>(values[i]);
          }
        },
        [&] { ++meeting_->reductions; });
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(meeting_->sums[i]);
    }
    // Nobody may begin the next sum before all have read this one.
    meeting_->Meet([] {}, [&] { meeting_->sums.clear(); });
    return absl::OkStatus();
  }

  Meeting* meeting_;
  int rank_;
};

}  // namespace ddl::testing

#endif  // DDLAUNCH_TESTS_UNIT_SDK_WORLD_H_
