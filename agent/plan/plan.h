// The training plan: batch mathematics as pure functions. No state, no I/O.
//
// Identity: global = micro x accumulation x world, in samples of one optimizer
// step. The global batch sets the gradient's noise and with it the learning
// rate; the micro-batch sets speed and memory of one device. The learning rate
// is a function of the actual global batch only (Goyal et al. 2017 for linear,
// Krizhevsky 2014 for sqrt), so it is never applied twice nor per worker.
#ifndef DDLAUNCH_AGENT_PLAN_PLAN_H_
#define DDLAUNCH_AGENT_PLAN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddl::plan {

enum class LrScaling : std::uint8_t { kNone, kLinear, kSqrt };

// What is asked for. An absent field follows from the others.
struct Request {
  std::optional<std::int64_t> global_batch_size;     // samples, all ranks
  std::optional<std::int64_t> micro_batch_size;      // samples, one rank
  std::optional<std::int64_t> max_micro_batch_size;  // samples: the memory's cap
  std::optional<std::int64_t> grad_accum_steps;
  std::optional<double> base_lr;  // the rate at base_batch_size
  std::optional<std::int64_t> base_batch_size;
  std::optional<LrScaling> lr_scaling;
  std::optional<std::int64_t> warmup_steps;  // optimizer steps

  // Nothing at all was asked for.
  [[nodiscard]] bool empty() const;
  friend bool operator==(const Request&, const Request&) = default;
};

// The agreed numbers for one world size.
struct Plan {
  std::int64_t world_size = 0;
  std::int64_t global_batch_size = 0;
  std::int64_t micro_batch_size = 0;
  std::int64_t grad_accum_steps = 0;
  std::optional<double> learning_rate;  // absent: nobody gave a rate
  std::int64_t warmup_steps = 0;

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

// The request that keeps `plan`'s global batch for another world: accumulation
// is free again, and the micro-batch stays a cap where it cannot stay as it is.
Request HoldGlobal(const Request& request, const Plan& plan);

// 16 lower-case hexadecimal digits over the canonical text of all fields.
std::string Hash(const Plan& plan);

// "global batch 128 = micro 32 x accumulation 2 x world 2, learning rate 0.1,
// warm-up 0 steps" (the last two where they say something).
std::string Describe(const Plan& plan);

// "--global-batch-size=64 --base-lr=0.1": the flags that would ask for it.
std::string Describe(const Request& request);

// "none", "linear", "sqrt".
absl::StatusOr<LrScaling> ParseLrScaling(const std::string& text);
const char* ToString(LrScaling scaling);

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_PLAN_H_
