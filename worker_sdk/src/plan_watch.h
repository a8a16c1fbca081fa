// PlanWatch: how the ranks agree to repeat an optimizer step with a smaller
// micro-batch, without the collective that may be stuck.
//
// A rank that ran out of memory in step S reports it at the gateway; every rank's
// watcher thread then learns of the new revision of the plan. A watcher says "my
// rank is in step S" by a barrier at the gateway, as soon as that is so: it
// speaks for its rank also while that one waits in a collective of step S, which
// cannot end, as the rank that reported never joins it. Past the barrier nobody is
// still in step S - 1, so connections may be closed: each rank leaves what it is
// in (Backend::Interrupt, and the closing of its peers' connections), connects
// anew and repeats the step.
//
//   rank 0 (out of memory)   rank 1 (computes)       rank 2 (in the all-reduce)
//   ReportOutOfMemory        .                       .
//   watcher: Barrier         watcher: Barrier        watcher: Barrier
//   ---------------------------- all are in step S ---------------------------
//   Reconnect: closes        sees Pending() between  its all-reduce ends
//                            micro-steps; Reconnect  (ABORTED); Reconnect
//   Adopt, again             Adopt, again            Adopt, again
//
// Revisions are taken one by one: the watcher looks for the next only when its
// rank has adopted the one before.
#ifndef DDLAUNCH_WORKER_SDK_SRC_PLAN_WATCH_H_
#define DDLAUNCH_WORKER_SDK_SRC_PLAN_WATCH_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/backend.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// What a process knows of its round's plan, beyond the life of one PlanWatch.
// Owned by the Context.
struct PlanSeat {
  std::atomic<bool> taken = false;  // by a PlanWatch: one at a time
  std::atomic<int> revision = 0;    // the last that was adopted
  // The largest micro-batch that was asked for, by AgreePlan's answer, or that running
  // out of memory has taught; 0: none.
  std::atomic<std::int64_t> max_micro_batch_size = 0;
};

// One thread, the caller's, calls everything; the watcher thread is inside.
class PlanWatch {
 public:
  // `backend` must outlive it. `timeout`: how long ranks wait for each other.
  // FAILED_PRECONDITION: the seat is taken.
  static absl::StatusOr<std::unique_ptr<PlanWatch>> Create(std::shared_ptr<PlanSeat> seat,
                                                           std::shared_ptr<Gateway> gateway,
                                                           Backend* backend, const Plan& plan,
                                                           std::chrono::milliseconds timeout);
  // Cancels what the watcher waits for, and joins it.
  ~PlanWatch();
  PlanWatch(const PlanWatch&) = delete;
  PlanWatch& operator=(const PlanWatch&) = delete;

  // The caller is in optimizer step `step`, past everything before it.
  void Enter(std::int64_t step);
  void Leave();

  // A revision for this step is known: nothing of the attempt will count.
  [[nodiscard]] bool Pending();

  // Tells the gateway. OK: the step is to be repeated, see AwaitAgreement. Else
  // why it cannot; the agent knows then that this worker fails for lack of memory.
  absl::Status Report(const absl::Status& error);

  // Tells the agent, as far as it can be reached, that this worker fails for lack
  // of memory.
  void ReportExit(const absl::Status& error);

  // Waits until every rank is in this step, and returns the revision they agreed
  // on. From then on all must Reconnect.
  absl::StatusOr<PlanRevision> AwaitAgreement();

  // The revision is in force here.
  void Adopt(const PlanRevision& revision);

  [[nodiscard]] std::int64_t micro_batch_size() const { return micro_batch_size_; }

 private:
  PlanWatch(std::shared_ptr<PlanSeat> seat, std::shared_ptr<Gateway> gateway, Backend* backend,
            const Plan& plan, std::chrono::milliseconds timeout);
  void Watch(const std::stop_token& stop);
  // One revision, from its announcement to its adoption.
  absl::Status Follow(const std::stop_token& stop);
  // The next announcement, past an agent that is out of reach for a while.
  absl::StatusOr<PlanRevision> Next(int after, const std::stop_token& stop);
  void Warn(const absl::Status& status, const char* then) const;
  absl::Status Check(const PlanRevision& revision) const;
  [[nodiscard]] OutOfMemoryReport ReportOf(const absl::Status& error) const;

  static constexpr std::int64_t kOutside = -1;

  const std::shared_ptr<PlanSeat> seat_;
  const std::shared_ptr<Gateway> gateway_;
  Backend* const backend_;
  const std::int64_t global_batch_size_;
  const std::chrono::milliseconds timeout_;
  std::int64_t micro_batch_size_;  // of the caller's thread
  std::int64_t step_ = kOutside;   // written by the caller's thread, under mutex_

  std::mutex mutex_;
  std::condition_variable_any changed_;
  int adopted_;                        // guarded by mutex_
  std::optional<PlanRevision> known_;  // guarded by mutex_; not adopted yet
  bool agreed_ = false;                // guarded by mutex_; on known_
  absl::Status failed_;                // guarded by mutex_; the watcher has ended
  absl::Status unreached_;             // guarded by mutex_; the agent, the last time
  bool warned_ = false;                // of the watcher's thread
  std::jthread watcher_;               // last: it uses all of the above
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_PLAN_WATCH_H_
