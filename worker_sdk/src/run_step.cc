// DataParallel::RunStep: an optimizer step that is done again, with a smaller
// micro-batch, when it runs out of memory. How the ranks agree: plan_watch.h.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "agent/base/check.h"
#include "agent/base/status_macros.h"
#include "ddl/data_parallel.h"
#include "ddl/out_of_memory.h"
#include "worker_sdk/src/gateway.h"
#include "worker_sdk/src/plan_watch.h"
#include "worker_sdk/src/step_advice.h"

namespace ddl {
namespace {

// Tells the watcher thread how far this rank is, while it is in the step.
class InStep {
 public:
  InStep(internal::PlanWatch* watch, std::int64_t step) : watch_(watch) {
    if (watch_ != nullptr) {
      watch_->Enter(step);
    }
  }
  ~InStep() {
    if (watch_ != nullptr) {
      watch_->Leave();
    }
  }
  InStep(const InStep&) = delete;
  InStep& operator=(const InStep&) = delete;

 private:
  internal::PlanWatch* const watch_;
};

absl::StatusOr<MicroResult> Compute(const MicroStep& compute,
                                    std::span<const std::int64_t> samples) {
  try {
    return compute(samples);
  } catch (const std::exception& e) {
    if (!IsOutOfMemory(e)) {
      throw;
    }
    return OutOfMemoryOf(e);
  }
}

}  // namespace

struct DataParallel::Attempt {
  absl::StatusOr<StepResult> result;
  bool computed = false;      // something, so that there may be something to put back
  bool communicated = false;  // the error is the backend's
};

absl::StatusOr<DataParallel> DataParallel::Create(const Context& context, const Plan& plan,
                                                  Backend* backend,
                                                  std::vector<Parameter> parameters,
                                                  const DataParallelOptions& options) {
  if (plan.micro_batch_size < 1) {
    return absl::InvalidArgumentError("the plan has no batch sizes: " + plan.ToString());
  }
  DDL_ASSIGN_OR_RETURN(DataParallel parallel, Create(backend, std::move(parameters), options));
  DDL_ASSIGN_OR_RETURN(parallel.watch_,
                       internal::PlanWatch::Create(internal::ContextAccess::SeatOf(context),
                                                   internal::ContextAccess::GatewayOf(context),
                                                   backend, plan, options.agreement_timeout));
  parallel.agent_tells_ = context.has_launcher();
  return parallel;
}

std::int64_t DataParallel::micro_batch_size() const {
  return watch_ == nullptr ? 0 : watch_->micro_batch_size();
}

absl::StatusOr<StepResult> DataParallel::RunStep(const StepShare& share, const MicroStep& compute) {
  DDL_CHECK(next_step_ >= 0);
  const InStep in_step(watch_.get(), next_step_);
  for (;;) {
    Attempt attempt = Try(share, compute);
    if (attempt.result.ok()) {
      ++next_step_;
      return std::move(attempt.result);
    }
    DDL_RETURN_IF_ERROR(PrepareRetry(attempt));
    ZeroGradients();
    if (attempt.computed && before_retry_ != nullptr) {
      before_retry_();
    }
  }
}

DataParallel::Attempt DataParallel::Try(const StepShare& share, const MicroStep& compute) {
  const auto others_wait = [&] { return watch_ != nullptr && watch_->Pending(); };
  Attempt attempt;
  attempt.result = absl::AbortedError("the step is to be done again");
  ZeroGradients();
  loss_sum_ = 0;
  weight_ = 0;
  const auto split = Split(share);
  if (!split.ok()) {
    attempt.result = split.status();
    return attempt;
  }
  const std::vector<std::span<const std::int64_t>>& micro_batches = *split;
  advice_->Begin(share, micro_batches);
  for (const std::span<const std::int64_t> samples : micro_batches) {
    if (others_wait()) {
      return attempt;
    }
    attempt.computed = true;
    absl::StatusOr<MicroResult> micro = Compute(compute, samples);
    const absl::Status added =
        micro.ok() ? AddMicroBatch(micro->loss_sum, micro->weight) : micro.status();
    if (!added.ok()) {
      attempt.result = added;
      return attempt;
    }
  }
  if (others_wait()) {
    return attempt;
  }
  attempt.result = FinishStep();
  attempt.communicated = true;
  return attempt;
}

absl::StatusOr<std::vector<std::span<const std::int64_t>>> DataParallel::Split(
    const StepShare& share) const {
  if (watch_ == nullptr && !share.micro_batches.empty()) {
    return share.micro_batches;
  }
  if (share.samples.empty() && !share.micro_batches.empty()) {
    return absl::InvalidArgumentError(
        "the share of step " + std::to_string(next_step_) + " has " +
        std::to_string(share.micro_batches.size()) +
        " micro-batches but no samples: a DataParallel that was created with the context splits "
        "StepShare::samples itself; set that too");
  }
  if (watch_ == nullptr) {
    return share.samples.empty() ? std::vector<std::span<const std::int64_t>>()
                                 : std::vector{share.samples};
  }
  const auto micro = static_cast<std::size_t>(watch_->micro_batch_size());
  std::vector<std::span<const std::int64_t>> parts;
  for (std::size_t begin = 0; begin < share.samples.size(); begin += micro) {
    parts.push_back(share.samples.subspan(begin, std::min(micro, share.samples.size() - begin)));
  }
  return parts;
}

// OK: the step can be done again. Else what to tell the caller.
absl::Status DataParallel::PrepareRetry(const Attempt& attempt) {
  const absl::Status& error = attempt.result.status();
  const bool ours = IsOutOfMemory(error);
  if (ours) {
    const absl::Status refused = ReportOurs(attempt);
    if (!refused.ok()) {
      return GiveUp(error, refused);
    }
  } else if (watch_ == nullptr || !watch_->Pending() ||
             !(attempt.communicated || absl::IsAborted(error))) {
    return error;
  }
  const auto give_up = [&](const absl::Status& why) {
    if (!ours) {
      return why;
    }
    // How it ends now is still for lack of memory.
    watch_->ReportExit(error);
    return GiveUp(error, why);
  };
  const absl::StatusOr<internal::PlanRevision> revision = watch_->AwaitAgreement();
  if (!revision.ok()) {
    const std::string why = attempt.communicated ? std::string(error.message()) + "; " : "";
    return give_up({revision.status().code(), why + "to do step " + std::to_string(next_step_) +
                                                  " again after a rank ran out of memory: " +
                                                  std::string(revision.status().message())});
  }
  if (ours) {
    SayRetry(error, *revision);
  }
  if (const absl::Status status = backend_->Reconnect(); !status.ok()) {
    return give_up(status);
  }
  watch_->Adopt(*revision);
  return absl::OkStatus();
}

// OK: all ranks are to do the step again. Else why they cannot; the agent knows
// then, where there is one, how this worker ends.
absl::Status DataParallel::ReportOurs(const Attempt& attempt) {
  const absl::Status& error = attempt.result.status();
  if (watch_ == nullptr) {
    return absl::FailedPreconditionError(
        "the step cannot be done again: the DataParallel was created without the context");
  }
  if (attempt.communicated) {
    watch_->ReportExit(error);
    return absl::FailedPreconditionError(
        "the step cannot be done again: memory ran out while the ranks communicated, and others "
        "may have finished the step");
  }
  return watch_->Report(error);
}

// The agent, where there is one, says each time who ran out of memory and what
// changes. The words of the error, and what to try, are this rank's to say, once.
void DataParallel::SayRetry(const absl::Status& error, const internal::PlanRevision& revision) {
  const std::string where = "ddl: rank " + std::to_string(backend_->rank()) + ", step " +
                            std::to_string(next_step_) + ": ";
  std::string text;
  if (!agent_tells_) {
    text += where + "out of memory: micro-batch " + std::to_string(watch_->micro_batch_size()) +
            " -> " + std::to_string(revision.plan.micro_batch_size) +
            ", and the step is done again\n";
  }
  if (!hints_said_) {
    hints_said_ = true;
    text += where + std::string(error.message()) + ". " + OutOfMemoryHints() + "\n";
  }
  std::fputs(text.c_str(), stderr);
}

absl::Status DataParallel::GiveUp(const absl::Status& error, const absl::Status& refused) const {
  std::string text = "step " + std::to_string(next_step_);
  if (watch_ != nullptr) {
    text += ", a micro-batch of " + std::to_string(watch_->micro_batch_size());
  }
  std::string said(error.message());
  if (const std::string prefix = "out of memory: "; said.starts_with(prefix)) {
    said.erase(0, prefix.size());
  }
  const MemoryUse use = MemoryUseOf(error);
  if (const std::string known = ExplainMemoryUse(use); !known.empty()) {
    said += " (" + known + ")";
  }
  return OutOfMemory(use, text + ": " + said + "; " + std::string(refused.message()) + ". " +
                              OutOfMemoryHints(watch_ == nullptr));
}

}  // namespace ddl
