// The plan's flags as a request.
#include "launcher/cli/plan_flags.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "agent/base/status_macros.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

absl::StatusOr<std::int64_t> ParseCount(std::string_view text) {
  return ParseInteger(text, 1, std::numeric_limits<std::int64_t>::max());
}

absl::StatusOr<std::int64_t> ParseSteps(std::string_view text) {
  return ParseInteger(text, 0, std::numeric_limits<std::int64_t>::max());
}

absl::StatusOr<double> ParseAboveZero(std::string_view text) {
  return ParseNumber(text, Zero::kRefused);
}

absl::StatusOr<double> ParseFromZero(std::string_view text) {
  return ParseNumber(text, Zero::kAllowed);
}

absl::StatusOr<plan::LrScaling> ParseScaling(std::string_view text) {
  absl::StatusOr<plan::LrScaling> scaling = plan::ParseLrScaling(std::string(text));
  return scaling.ok() ? scaling : absl::InvalidArgumentError("must be none, linear or sqrt");
}

absl::StatusOr<plan::BatchPolicy> ParsePolicy(std::string_view text) {
  absl::StatusOr<plan::BatchPolicy> policy = plan::ParseBatchPolicy(std::string(text));
  return policy.ok() ? policy : absl::InvalidArgumentError("must be exact, nearest or fail");
}

absl::StatusOr<plan::LrDecay> ParseDecay(std::string_view text) {
  absl::StatusOr<plan::LrDecay> decay = plan::ParseLrDecay(std::string(text));
  return decay.ok() ? decay
                    : absl::InvalidArgumentError("must be constant, step, cosine or linear");
}

}  // namespace

absl::StatusOr<plan::Request> ReadPlanRequest(const Arguments& arguments) {
  plan::Request request;
  DDL_ASSIGN_OR_RETURN(request.global_batch_size,
                       ReadFlag(arguments, FlagId::kGlobalBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.micro_batch_size,
                       ReadFlag(arguments, FlagId::kMicroBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.max_micro_batch_size,
                       ReadFlag(arguments, FlagId::kMaxMicroBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.min_micro_batch_size,
                       ReadFlag(arguments, FlagId::kMinMicroBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.grad_accum_steps,
                       ReadFlag(arguments, FlagId::kGradAccumSteps, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.batch_policy,
                       ReadFlag(arguments, FlagId::kBatchPolicy, ParsePolicy));
  DDL_ASSIGN_OR_RETURN(request.base_lr, ReadFlag(arguments, FlagId::kBaseLr, ParseAboveZero));
  DDL_ASSIGN_OR_RETURN(request.base_batch_size,
                       ReadFlag(arguments, FlagId::kBaseBatchSize, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.lr_scaling, ReadFlag(arguments, FlagId::kLrScaling, ParseScaling));
  DDL_ASSIGN_OR_RETURN(request.total_samples,
                       ReadFlag(arguments, FlagId::kTotalSamples, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.epoch_samples,
                       ReadFlag(arguments, FlagId::kEpochSamples, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.warmup_steps, ReadFlag(arguments, FlagId::kWarmupSteps, ParseSteps));
  DDL_ASSIGN_OR_RETURN(request.warmup_ratio,
                       ReadFlag(arguments, FlagId::kWarmupRatio, ParseFromZero));
  DDL_ASSIGN_OR_RETURN(request.warmup_epochs,
                       ReadFlag(arguments, FlagId::kWarmupEpochs, ParseFromZero));
  DDL_ASSIGN_OR_RETURN(request.warmup_start_lr,
                       ReadFlag(arguments, FlagId::kWarmupStartLr, ParseFromZero));
  DDL_ASSIGN_OR_RETURN(request.lr_decay, ReadFlag(arguments, FlagId::kLrDecay, ParseDecay));
  DDL_ASSIGN_OR_RETURN(request.lr_decay_steps,
                       ReadFlag(arguments, FlagId::kLrDecaySteps, ParseCount));
  DDL_ASSIGN_OR_RETURN(request.lr_decay_epochs,
                       ReadFlag(arguments, FlagId::kLrDecayEpochs, ParseAboveZero));
  DDL_ASSIGN_OR_RETURN(request.lr_decay_factor,
                       ReadFlag(arguments, FlagId::kLrDecayFactor, ParseAboveZero));
  DDL_ASSIGN_OR_RETURN(request.adam_beta1, ReadFlag(arguments, FlagId::kAdamBeta1, ParseFromZero));
  DDL_ASSIGN_OR_RETURN(request.adam_beta2, ReadFlag(arguments, FlagId::kAdamBeta2, ParseFromZero));
  DDL_ASSIGN_OR_RETURN(request.adam_eps, ReadFlag(arguments, FlagId::kAdamEps, ParseAboveZero));
  if (arguments.Find(FlagId::kScaleAdam) != nullptr) {
    DDL_ASSIGN_OR_RETURN(request.scale_adam, ReadSwitch(arguments, FlagId::kScaleAdam));
  }
  return request;
}

absl::Status CheckPlan(const LaunchConfig& config) {
  const plan::Request& request = config.plan;
  DDL_RETURN_IF_ERROR(plan::CheckCompletable(request));
  if (config.max_nodes != 1 || !request.has_batch()) {
    return absl::OkStatus();
  }
  // Without a policy a job of fixed size fails: whoever asked is still there to correct it.
  return plan::Solve(plan::WithoutGaps(request), config.nproc).status();
}

}  // namespace ddl::cli
