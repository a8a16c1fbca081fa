// A node whose devices have room for a small micro-batch only: its workers report that,
// as the SDK's do, or end, as others do.
#include "absl/strings/str_cat.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace ddl::sim {

bool Node::LacksMemory() const {
  const std::int64_t fitting = world_.scenario().fitting_micro;
  return fitting > 0 && micro_ > fitting;
}

void Node::ReportOutOfMemory() {
  world_.Count(Tally::kOutOfMemory);
  memory_report_ = core::OutOfMemory{ref_, round_, first_rank_, micro_, round_, ""};
  Send(*memory_report_);
}

void Node::On(const core::PlanReply& reply) {
  if (reply.round == round_ && reply.plan.has_value()) {
    micro_ = reply.plan->micro_batch_size;
  }
}

void Node::On(const core::PlanChanged& changed) {
  if (changed.round != round_ || state_ != State::kRunning) {
    return;
  }
  if (!changed.plan.has_value()) {
    if (memory_report_.has_value() && changed.rank == first_rank_ && group_.alive) {
      memory_report_.reset();
      out_of_memory_ = failed_ = failure_unseen_ = true;
      group_.phase = Phase::kFailed;
    }
    return;
  }
  if (micro_ > 0 && changed.plan->micro_batch_size > micro_) {
    world_.Fail(absl::StrCat(ref_.incarnation, " is told of a larger micro-batch"));
  }
  micro_ = changed.plan->micro_batch_size;
  const bool waits = memory_report_.has_value() && memory_report_->micro_batch_size > micro_;
  if (waits) {
    memory_report_.reset();
    if (group_.alive && group_.phase == Phase::kRunning && !group_.stopping) {
      RunWorkers();
    }
  }
}

}  // namespace ddl::sim
