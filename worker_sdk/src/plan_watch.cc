// The watcher thread, and what the trainer's thread asks of it.
#include "worker_sdk/src/plan_watch.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "agent/base/status_macros.h"
#include "worker_sdk/src/plan_bridge.h"

namespace ddl::internal {

absl::StatusOr<std::unique_ptr<PlanWatch>> PlanWatch::Create(std::shared_ptr<PlanSeat> seat,
                                                             std::shared_ptr<Gateway> gateway,
                                                             Backend* backend, const Plan& plan,
                                                             std::chrono::milliseconds timeout) {
  if (seat->taken.exchange(true)) {
    return absl::FailedPreconditionError(
        "another DataParallel was created with this context and is still there; only one at a "
        "time can repeat steps: create the others without the context");
  }
  return std::unique_ptr<PlanWatch>(
      new PlanWatch(std::move(seat), std::move(gateway), backend, plan, timeout));
}

PlanWatch::PlanWatch(std::shared_ptr<PlanSeat> seat, std::shared_ptr<Gateway> gateway,
                     Backend* backend, const Plan& plan, std::chrono::milliseconds timeout)
    : seat_(std::move(seat)),
      gateway_(std::move(gateway)),
      backend_(backend),
      global_batch_size_(plan.global_batch_size),
      timeout_(timeout),
      micro_batch_size_(plan.micro_batch_size),
      adopted_(seat_->revision) {
  if (const std::int64_t most = seat_->max_micro_batch_size; most > 0) {
    micro_batch_size_ = std::min(micro_batch_size_, most);
  }
  watcher_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

PlanWatch::~PlanWatch() {
  watcher_.request_stop();
  watcher_.join();
  seat_->taken = false;
}

void PlanWatch::Enter(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  changed_.notify_all();
}

void PlanWatch::Leave() {
  const std::lock_guard lock(mutex_);
  step_ = kOutside;
}

bool PlanWatch::Pending() {
  const std::lock_guard lock(mutex_);
  return known_.has_value() && known_->step == step_;
}

OutOfMemoryReport PlanWatch::ReportOf(const absl::Status& error) const {
  OutOfMemoryReport report;
  report.micro_batch_size = micro_batch_size_;
  report.step = step_;
  report.memory = MemoryUseOf(error);
  report.text = std::string(error.message());
  return report;
}

void PlanWatch::ReportExit(const absl::Status& error) {
  OutOfMemoryReport report = ReportOf(error);
  report.exiting = true;
  [[maybe_unused]] const auto ignored = gateway_->ReportOutOfMemory(report);
}

absl::Status PlanWatch::Report(const absl::Status& error) {
  const absl::StatusOr<PlanRevision> answer = gateway_->ReportOutOfMemory(ReportOf(error));
  absl::Status refused = answer.ok() ? Check(*answer) : answer.status();
  if (refused.ok() && answer->revision <= adopted_) {
    refused = absl::InternalError("the agent's answer is revision " +
                                  std::to_string(answer->revision) + " of the plan again");
  }
  if (!refused.ok()) {
    ReportExit(error);
  }
  return refused;
}

absl::StatusOr<PlanRevision> PlanWatch::AwaitAgreement() {
  // The barrier has its own bound and better words; this one is for a revision
  // that never comes.
  constexpr int kPatience = 2;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience * timeout_, [&] { return agreed_ || !failed_.ok(); });
  if (agreed_) {
    return *known_;
  }
  if (!failed_.ok()) {
    return failed_;
  }
  const std::string why = unreached_.ok() ? "" : ": " + std::string(unreached_.message());
  return absl::DeadlineExceededError("the ranks were not told of the new plan within " +
                                     ToText(kPatience * timeout_) + why);
}

void PlanWatch::Adopt(const PlanRevision& revision) {
  micro_batch_size_ = revision.plan.micro_batch_size;
  seat_->revision = revision.revision;
  seat_->max_micro_batch_size = micro_batch_size_;
  const std::lock_guard lock(mutex_);
  adopted_ = revision.revision;
  known_.reset();
  agreed_ = false;
  changed_.notify_all();
}

void PlanWatch::Watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    absl::Status status = Follow(stop);
    if (status.ok()) {
      continue;
    }
    const std::lock_guard lock(mutex_);
    // A rank that is in the step hears of it there; and the end of a round is no news.
    const bool is_told = known_.has_value() && known_->step == step_;
    if (!is_told && !absl::IsAborted(status) && !absl::IsCancelled(status)) {
      Warn(status, "if a rank runs out of memory, the step cannot be done again");
    }
    failed_ = std::move(status);
    changed_.notify_all();
    return;
  }
}

void PlanWatch::Warn(const absl::Status& status, const char* then) const {
  std::fprintf(stderr, "ddl: warning: rank %d is not told when the plan changes: %s; %s\n",
               backend_->rank(), std::string(status.message()).c_str(), then);
}

absl::StatusOr<PlanRevision> PlanWatch::Next(int after, const std::stop_token& stop) {
  using Pause = std::chrono::milliseconds;
  constexpr Pause kFirstPause(50);
  constexpr Pause kLongestPause(5000);
  constexpr int kQuietFailures = 3;  // within a second
  Pause pause = kFirstPause;
  for (int failures = 1;; ++failures) {
    absl::StatusOr<PlanRevision> revision = gateway_->WatchPlan(after, stop);
    if (!absl::IsUnavailable(revision.status())) {
      return revision;
    }
    if (failures == kQuietFailures && !warned_) {
      warned_ = true;
      Warn(revision.status(), "it goes on trying");
    }
    std::unique_lock lock(mutex_);
    unreached_ = revision.status();
    changed_.wait_for(lock, stop, pause, [] { return false; });
    if (stop.stop_requested()) {
      return absl::CancelledError("watching the plan was given up");
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::Status PlanWatch::Follow(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const int adopted = adopted_;
  lock.unlock();
  DDL_ASSIGN_OR_RETURN(const PlanRevision revision, Next(adopted, stop));
  DDL_RETURN_IF_ERROR(Check(revision));
  lock.lock();
  known_ = revision;
  // The rank may still be in the step before, or between the two.
  if (!changed_.wait(lock, stop, [&] { return step_ >= revision.step; })) {
    return absl::CancelledError("watching the plan was given up");
  }
  if (step_ > revision.step) {
    return absl::InternalError("the plan is to change in step " + std::to_string(revision.step) +
                               ", but this rank is in step " + std::to_string(step_) +
                               ": every rank must make the same steps");
  }
  lock.unlock();
  const std::string barrier = "ddl/plan/" + std::to_string(revision.revision);
  DDL_RETURN_IF_ERROR(gateway_->Barrier(barrier, timeout_, stop));
  backend_->Interrupt();
  lock.lock();
  agreed_ = true;
  changed_.notify_all();
  changed_.wait(lock, stop, [&] { return adopted_ == revision.revision; });
  return absl::OkStatus();
}

absl::Status PlanWatch::Check(const PlanRevision& revision) const {
  DDL_RETURN_IF_ERROR(CheckPlan(revision.plan, backend_->world_size()));
  if (revision.plan.global_batch_size != global_batch_size_) {
    return absl::InternalError("the agent's new plan (" + revision.plan.ToString() +
                               ") does not hold the global batch of " +
                               std::to_string(global_batch_size_));
  }
  return absl::OkStatus();
}

}  // namespace ddl::internal
