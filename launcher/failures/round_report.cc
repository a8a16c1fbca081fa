// A failure's age is counted anew each time it is said.
#include "launcher/failures/round_report.h"

#include <utility>

namespace ddl {

void RoundReport::Begin(std::int64_t round) {
  round_ = round;
  cause_.reset();
  outcome_.reset();
}

core::WorkerFailed RoundReport::Failed(core::WorkerFailure failure, Instant failed_at,
                                       Instant now) {
  const bool may_be_cause =
      !cause_.has_value() || std::pair(failure.blames_peer, failed_at) <
                                 std::pair(cause_->failure.blames_peer, cause_->failed_at);
  if (may_be_cause) {
    cause_ = Told{failure, failed_at};
  } else {
    failure.error_text.clear();
  }
  return {{}, round_, std::move(failure), now - failed_at};
}

const core::Event& RoundReport::Ended(core::Event outcome) {
  return outcome_.emplace(std::move(outcome));
}

std::vector<core::Event> RoundReport::Again(Instant now) const {
  std::vector<core::Event> events;
  if (cause_.has_value()) {
    events.emplace_back(core::WorkerFailed{{}, round_, cause_->failure, now - cause_->failed_at});
  }
  if (outcome_.has_value()) {
    events.push_back(*outcome_);
  }
  return events;
}

}  // namespace ddl
