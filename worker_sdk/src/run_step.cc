// DataParallel::RunStep: an optimizer step that is done again, with a smaller
// micro-batch, when it runs out of memory. How the ranks agree: plan_watch.h.
#include <algorithm>
#include <cmath>
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
#include "worker_sdk/src/micro_batches.h"
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
  parallel.advice_->LimitMicroBatch(internal::ContextAccess::SeatOf(context)->max_micro_batch_size);
  return parallel;
}

std::int64_t DataParallel::micro_batch_size() const {
  return watch_ == nullptr ? 0 : watch_->micro_batch_size();
}

absl::StatusOr<StepResult> DataParallel::RunStep(const StepShare& share, const MicroStep& compute) {
  DDL_CHECK(next_step_ >= 0);
  const InStep in_step(watch_.get(), next_step_);
  Forget();
  for (;;) {
    Attempt attempt = Try(share, compute);
    if (attempt.result.ok()) {
      return std::move(attempt.result);
    }
    DDL_RETURN_IF_ERROR(PrepareRetry(attempt));
  }
}

// Nothing of this step has been computed.
void DataParallel::Forget() {
  ZeroGradients();
  loss_sum_ = 0;
  weight_ = 0;
}

bool DataParallel::OthersWait() const {
  return watch_ != nullptr && watch_->Pending();
}

DataParallel::Attempt DataParallel::Try(const StepShare& share, const MicroStep& compute) {
  Attempt attempt;
  const auto split = Split(share);
  if (!split.ok()) {
    attempt.result = split.status();
    return attempt;
  }
  advice_->Begin(share, *split);
  if (absl::Status status = ComputeShare(*split, compute, attempt); !status.ok()) {
    attempt.result = std::move(status);
    return attempt;
  }
  attempt.result = FinishStep();
  attempt.communicated = true;
  return attempt;
}

// ABORTED: the step is to be done again.
absl::Status DataParallel::ComputeShare(
    const std::vector<std::span<const std::int64_t>>& micro_batches, const MicroStep& compute,
    Attempt& attempt) {
  std::vector<bool> left_out(micro_batches.size());
  for (std::size_t i = 0; i < micro_batches.size();) {
    if (OthersWait()) {
      break;
    }
    if (left_out[i]) {
      ++i;
      continue;
    }
    attempt.computed = true;
    DDL_ASSIGN_OR_RETURN(const MicroResult micro, Compute(compute, micro_batches[i]));
    DDL_RETURN_IF_ERROR(AddMicroBatch(micro.loss_sum, micro.weight));
    left_out[i] = micro.weight == 0 && !GradientsAreFinite();
    i = left_out[i] && LeaveOut() ? 0 : i + 1;
  }
  return OthersWait() ? absl::AbortedError("the step is to be done again") : absl::OkStatus();
}

// Takes the gradient of a micro-batch without weight out of the arrays again. True:
// those before it are lost with it, and to be computed again.
bool DataParallel::LeaveOut() {
  if (weight_ == 0) {
    ZeroGradients();  // none of them has a say
    return false;
  }
  if (!left_out_said_) {
    left_out_said_ = true;
    std::fprintf(stderr,
                 "ddl: rank %d, step %lld: a micro-batch of weight 0 has a gradient that is not "
                 "finite; it is left out and those before it are computed again, which a gradient "
                 "of 0 would save\n",
                 backend_->rank(), static_cast<long long>(next_step_));
  }
  Forget();
  if (before_retry_ != nullptr) {
    before_retry_();
  }
  return true;
}

bool DataParallel::GradientsAreFinite() const {
  return std::all_of(parameters_.begin(), parameters_.end(), [](const Parameter& parameter) {
    return std::all_of(parameter.gradient.begin(), parameter.gradient.end(),
                       [](float element) { return std::isfinite(element); });
  });
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
  return internal::SplitShare(share.samples, watch_->micro_batch_size());
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
  // From here on the memory is not what fails: the plan that was agreed has a smaller
  // micro-batch, also for the next round.
  const absl::StatusOr<internal::PlanRevision> revision = watch_->AwaitAgreement();
  if (!revision.ok()) {
    const std::string broken = attempt.communicated ? std::string(error.message()) + "; " : "";
    const char* const late =
        absl::IsDeadlineExceeded(revision.status()) ? ", a peer did not come within the time" : "";
    return {revision.status().code(), broken + "to do step " + std::to_string(next_step_) +
                                          " again after a rank ran out of memory" + late + ": " +
                                          std::string(revision.status().message())};
  }
  if (ours) {
    SayRetry(error, *revision);
  }
  // Before connecting, which takes device memory of its own.
  Forget();
  if (attempt.computed && before_retry_ != nullptr) {
    before_retry_();
  }
  DDL_RETURN_IF_ERROR(backend_->Reconnect());
  watch_->Adopt(*revision);
  advice_->MemoryRanOut();
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
