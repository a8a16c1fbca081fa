// The training plan: batch mathematics as pure functions. No state, no I/O.
//
// Identity: global = micro x accumulation x world, in samples of one optimizer
// step; where shares or micro-steps are uneven, it is less than that. The global batch sets the
// gradient's noise and with it the learning rate; the micro-batch sets speed and memory of one
// device. The learning rate is a function of the actual global batch only (Goyal et al. 2017 for
// linear, Krizhevsky 2014 for sqrt), so it is never applied twice nor per worker.
#ifndef DDLAUNCH_AGENT_PLAN_PLAN_H_
#define DDLAUNCH_AGENT_PLAN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddl::plan {

enum class LrScaling : std::uint8_t { kNone, kLinear, kSqrt };

// When the world cannot share the global batch evenly.
enum class BatchPolicy : std::uint8_t {
  kFail,     // refuse
  kNearest,  // even shares of a global batch close to it
  kExact,    // uneven shares of it; their gradients are weighted by samples
};

// What the rate does after the warm-up.
enum class LrDecay : std::uint8_t { kConstant, kStep, kCosine, kLinear };

// What is asked for. An absent field follows from the others.
struct Request {
  // The batch, in samples.
  std::optional<std::int64_t> global_batch_size;     // of one optimizer step, all ranks
  std::optional<std::int64_t> micro_batch_size;      // of one micro-step, one rank
  std::optional<std::int64_t> max_micro_batch_size;  // the memory's cap
  std::optional<std::int64_t> min_micro_batch_size;  // out of memory lowers it no further
  std::optional<std::int64_t> grad_accum_steps;
  std::optional<BatchPolicy> batch_policy;
  // No flag: what running out of memory taught. The share of a rank is split into
  // micro-batches of at most so many; the global batch does not depend on it.
  std::optional<std::int64_t> learned_max_micro_batch_size;
  // No flag: the program splits its share as the SDK's RunStep does, so the lesson may
  // leave the last micro-batches of a step one sample smaller than the others.
  std::optional<bool> uneven_micro_steps;
  // The rate.
  std::optional<double> base_lr;  // at base_batch_size
  std::optional<std::int64_t> base_batch_size;
  std::optional<LrScaling> lr_scaling;
  // The extent of training, in samples.
  std::optional<std::int64_t> total_samples;
  std::optional<std::int64_t> epoch_samples;
  // The warm-up: one of three; steps are optimizer steps at the global batch
  // asked for, the ratio is of total_samples.
  std::optional<std::int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  std::optional<double> warmup_epochs;
  std::optional<double> warmup_start_lr;  // default 0
  // The decay; kStep multiplies the rate by the factor at each interval: one of two.
  std::optional<LrDecay> lr_decay;
  std::optional<std::int64_t> lr_decay_steps;
  std::optional<double> lr_decay_epochs;
  std::optional<double> lr_decay_factor;  // default 0.1
  // Adam, at base_batch_size; scaled only when asked.
  std::optional<double> adam_beta1;
  std::optional<double> adam_beta2;
  std::optional<double> adam_eps;
  std::optional<bool> scale_adam;

  // Nothing at all was asked for.
  [[nodiscard]] bool empty() const;
  // It decides the batch. A rate, a cap or a warm-up alone makes no plan.
  [[nodiscard]] bool has_batch() const;
  friend bool operator==(const Request&, const Request&) = default;
};

struct Adam {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  friend bool operator==(const Adam&, const Adam&) = default;
};

// The agreed numbers for one world size. Warm-up and schedule are counted in
// samples, so that a change of the world in mid-training neither repeats nor
// skips any of them; the steps are those at this plan's global batch.
struct Plan {
  std::int64_t world_size = 0;
  std::int64_t global_batch_size = 0;
  std::int64_t micro_batch_size = 0;    // the largest of a step
  std::int64_t grad_accum_steps = 0;    // the most micro-steps of a rank
  std::optional<double> learning_rate;  // absent: nobody gave a rate
  std::int64_t warmup_samples = 0;
  std::int64_t warmup_steps = 0;
  double warmup_start_lr = 0;
  std::int64_t total_samples = 0;  // 0: not known
  std::int64_t total_steps = 0;    // 0: not known
  LrDecay lr_decay = LrDecay::kConstant;
  std::int64_t lr_decay_samples = 0;  // kStep: between two decays
  double lr_decay_factor = 0;         // kStep
  std::optional<Adam> adam;

  // global = micro x accumulation x world. Else either the ranks' shares differ
  // (kExact), by at most one sample, the first ranks have the larger ones; or the last
  // micro-batches of a share are a sample smaller (kExact, uneven_micro_steps); or both.
  [[nodiscard]] bool even() const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Solves the identity for `world_size` ranks.
// Errors: INVALID_ARGUMENT, a number out of range, numbers that contradict each
// other, or a global batch that cannot be reached; the message names each value
// (as the flag that sets it) and the nearest that would do.
absl::StatusOr<Plan> Solve(const Request& request, std::int64_t world_size);

// The launcher's request over the program's defaults. The batch numbers
// (global, micro, accumulation) go together: if the launcher gives any of them,
// none is taken from the program. Every other field is the launcher's where it
// is given, else the program's.
Request Merge(const Request& launcher, const Request& program);

// The request without the parts that only the program's defaults can complete: a
// scaling without its base, a warm-up or a decay by what is not given. What is left
// can be judged before the program has spoken.
Request WithoutGaps(const Request& request);

// What no program's defaults can mend in a launcher's request. Errors:
// INVALID_ARGUMENT, a number out of range, or numbers that contradict each other
// whatever the world; what is only missing is none.
absl::Status CheckCompletable(const Request& launcher);

// The launcher's flags that are not in force until the program completes them, with
// what is missing, in words for the log: "--warmup-ratio=0.03 needs --total-samples",
// "--base-lr=0.1 and --lr-scaling=linear need --base-batch-size: no learning rate is
// set", "--base-lr=0.1 needs a batch size". `in_force` is what the round's plan was
// solved from; Request() where there is no plan.
std::vector<std::string> NotInForce(const Request& launcher, const Request& in_force);

// The request that keeps the global batch for another world: the one asked for, or
// `plan`'s where none was. Accumulation is free again, and the micro-batch stays a
// cap where it cannot stay as it is.
Request HoldGlobal(const Request& request, const Plan& plan);

// What running out of memory makes of a plan, also in the middle of a round.
struct Lowered {
  Request request;  // with the lesson, for later rounds too
  Plan plan;        // of that request: all but the split of a step is held
};
// The micro-batch of `plan`, which was solved from `request`, is halved, rounded up (no further
// than to min_micro_batch_size); the micro-steps make up for it. Where micro-steps must be
// even (neither kExact nor uneven_micro_steps) the micro-batch is the largest divisor of
// a rank's share that is left.
// Errors: FAILED_PRECONDITION, there is no smaller micro-batch that may be used.
absl::StatusOr<Lowered> Lower(const Request& request, const Plan& plan);

// What moved and what was held: "world 4 -> 3, accumulation 3 -> 4; global batch 48,
// micro-batch 4, learning rate 0.1 and warm-up held".
std::string Changes(const Plan& before, const Plan& after);

// One loud line where the global batch or its shares are not what was asked for, else
// nothing: "global batch 48 cannot be shared evenly by 5 ranks: 50 is used
// (--batch-policy=nearest), learning rate 0.416667 for it".
std::string Compare(const Request& request, const Plan& plan);

// Loud lines, each one sentence, on what the numbers do not show: a micro-batch far
// below what fits a device or below its floor, a warm-up or a first decay that lies
// beyond the end of training. `plan` was solved from `request`.
std::vector<std::string> Warnings(const Request& request, const Plan& plan);

// "3 ranks x 10 + 2 x 9", "2 ranks x 31": which ranks have how many samples.
std::string DescribeShares(const Plan& plan);

// The samples of one rank in a full optimizer step: the first ranks have one more
// where the global batch cannot be shared evenly. REQUIRES: 0 <= rank < world_size.
std::int64_t RankBatchSize(const Plan& plan, std::int64_t rank);

// 16 lower-case hexadecimal digits over the canonical text of all fields.
std::string Hash(const Plan& plan);

// "global batch 128 = micro 32 x accumulation 2 x world 2, learning rate 0.1,
// warm-up 5 steps" (the last two where they say something); uneven: "global batch 48 =
// 3 ranks x 10 + 2 x 9 samples, in 3 micro-steps of up to 4".
std::string Describe(const Plan& plan);

// "--global-batch-size=64 --base-lr=0.1": the flags that would ask for it.
std::string Describe(const Request& request);

// "none", "linear", "sqrt".
absl::StatusOr<LrScaling> ParseLrScaling(const std::string& text);
const char* ToString(LrScaling scaling);
// "fail", "nearest", "exact".
absl::StatusOr<BatchPolicy> ParseBatchPolicy(const std::string& text);
const char* ToString(BatchPolicy policy);
// "constant", "step", "cosine", "linear".
absl::StatusOr<LrDecay> ParseLrDecay(const std::string& text);
const char* ToString(LrDecay decay);

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_PLAN_H_
