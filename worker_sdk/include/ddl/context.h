// Context: this worker's place in the job, and its line to the node's agent.
//
// ddlaunch starts each worker with its place in the environment (RANK,
// WORLD_SIZE, LOCAL_RANK, ...) and the address of a gateway on this node
// (DDL_GATEWAY). Context reads both. A program that was started by hand, with
// neither, is a world of one: everything works, with a key store of its own.
//
//   absl::StatusOr<ddl::Context> context = ddl::Context::Create();
//   if (!context.ok()) { ... }
//   ddl::PlanDefaults defaults;
//   defaults.global_batch_size = 32;
//   defaults.base_lr = 0.1;
//   absl::StatusOr<ddl::Plan> plan = context->AgreePlan(defaults);
//
// Thread safety: all methods may be called from any thread at the same time,
// except move and destruction.
#ifndef DDL_CONTEXT_H_
#define DDL_CONTEXT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddl {

namespace internal {
class Gateway;
struct ContextAccess;
}  // namespace internal

// How the learning rate follows the global batch. kLinear: Goyal et al. 2017,
// rate = base_lr x global / base_batch_size. kSqrt: Krizhevsky 2014, rate =
// base_lr x sqrt(global / base_batch_size).
enum class LrScaling : std::uint8_t { kNone, kLinear, kSqrt };

// When the world cannot share the global batch evenly: refuse; train on even
// shares of a global batch close to it; or on uneven shares, whose gradients
// DataParallel weights by samples.
enum class BatchPolicy : std::uint8_t { kFail, kNearest, kExact };

// What the learning rate does after the warm-up: see lr_schedule.h.
enum class LrDecay : std::uint8_t { kConstant, kStep, kCosine, kLinear };

// What the program asks for where the user (the launcher's flags) did not. An
// absent field follows from the others. The batch numbers (global, micro,
// accumulation) go together: if the user gave any of them, none of the
// program's is used.
struct PlanDefaults {
  std::optional<std::int64_t> global_batch_size;     // samples, all ranks
  std::optional<std::int64_t> micro_batch_size;      // samples, one rank
  std::optional<std::int64_t> max_micro_batch_size;  // samples; what memory holds
  std::optional<std::int64_t> min_micro_batch_size;  // out of memory lowers it no further
  std::optional<std::int64_t> grad_accum_steps;
  std::optional<BatchPolicy> batch_policy;  // goes with the batch numbers
  std::optional<double> base_lr;            // the rate at base_batch_size
  std::optional<std::int64_t> base_batch_size;
  std::optional<LrScaling> lr_scaling;
  std::optional<std::int64_t> total_samples;  // of the whole training
  std::optional<std::int64_t> epoch_samples;  // of the training set
  // The warm-up: one of three. Steps are optimizer steps at the global batch
  // asked for, the ratio (0 to 1) is of total_samples.
  std::optional<std::int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  std::optional<double> warmup_epochs;
  std::optional<double> warmup_start_lr;  // where it begins; default 0
  std::optional<LrDecay> lr_decay;
  // kStep: the interval (one of two), and what the rate is multiplied by.
  std::optional<std::int64_t> lr_decay_steps;
  std::optional<double> lr_decay_epochs;
  std::optional<double> lr_decay_factor;  // default 0.1
  // Adam's numbers at base_batch_size. Scaled only when asked (Malladi et al.
  // 2022: with kSqrt).
  std::optional<double> adam_beta1;
  std::optional<double> adam_beta2;
  std::optional<double> adam_eps;
  std::optional<bool> scale_adam;
};

// Adam's numbers for a plan's global batch.
struct Adam {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
};

// The agreed numbers, the same on every rank of a round.
// global_batch_size = micro_batch_size x grad_accum_steps x world_size, unless the
// policy kExact gave the ranks uneven shares, or running out of memory uneven micro-
// steps: then global_batch_size is smaller than the product, and shares, and the micro-
// batches of one, differ by at most one sample. Warm-up and
// schedule are counted in samples; steps are those at this global batch.
struct Plan {
  std::int64_t world_size = 1;
  std::int64_t global_batch_size = 0;   // samples of one optimizer step
  std::int64_t micro_batch_size = 0;    // samples of one rank in a micro-step
  std::int64_t grad_accum_steps = 0;    // micro-steps of one optimizer step
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
  std::string hash;  // 16 hexadecimal digits over the above

  // "global batch 128 = micro 32 x accumulation 2 x world 2, learning rate 0.1"
  [[nodiscard]] std::string ToString() const;
};

struct ContextOptions {
  // How long to wait for the agent to answer the registration.
  std::chrono::milliseconds register_timeout = std::chrono::seconds(30);
  // How long AgreePlan waits for the coordinator's answer.
  std::chrono::milliseconds plan_timeout = std::chrono::minutes(10);
};

class Context {
 public:
  // Reads the environment and registers at the gateway.
  // Errors: INVALID_ARGUMENT, a variable that is no number or out of range;
  // FAILED_PRECONDITION, a world above one without a gateway, or one that
  // disagrees with the agent; UNAVAILABLE / DEADLINE_EXCEEDED, the agent does
  // not answer; ABORTED, the round this process was started in is over.
  static absl::StatusOr<Context> Create(const ContextOptions& options = {});

  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  // 0 .. world_size() - 1.
  [[nodiscard]] int rank() const;
  // 0 .. local_world_size() - 1, on this node: picks the device, modulo the number
  // of devices that are seen (one, under --virtual-local-rank).
  [[nodiscard]] int local_rank() const;
  [[nodiscard]] int world_size() const;
  [[nodiscard]] int local_world_size() const;
  [[nodiscard]] int node_rank() const;
  [[nodiscard]] int num_nodes() const;
  // How often the job's workers were restarted after a failure.
  [[nodiscard]] int restart_count() const;
  // One agreed membership; counts up, never repeats. 0 in a world of one that
  // no launcher started.
  [[nodiscard]] std::int64_t round() const;
  [[nodiscard]] const std::string& job_id() const;
  // The address by which the other ranks reach this node.
  [[nodiscard]] const std::string& address() const;
  [[nodiscard]] const std::string& master_addr() const;
  [[nodiscard]] int master_port() const;
  // False: the program was started by hand.
  [[nodiscard]] bool has_launcher() const;

  // Writes a key for the ranks of this round, once. Keys have at most 256
  // bytes, values 512 KiB.
  // Errors: ALREADY_EXISTS, it has another value; INVALID_ARGUMENT, too long;
  // ABORTED, the round is over; UNAVAILABLE, the agent is gone.
  absl::Status Publish(std::string_view key, std::string_view value) const;

  // Waits until any rank has published `key` and returns its value.
  // Errors: as Publish; DEADLINE_EXCEEDED, the text says what was waited for.
  [[nodiscard]] absl::StatusOr<std::string> Fetch(std::string_view key,
                                                  std::chrono::milliseconds timeout) const;

  // Waits until every rank has entered the barrier of this name; a name is used
  // once in a round. Errors: as Fetch; the text names who is missing.
  absl::Status Barrier(std::string_view name, std::chrono::milliseconds timeout) const;

  // Offers the program's defaults, and returns the plan that all ranks agreed
  // on. Every rank must call it, with the same defaults.
  // Errors: INVALID_ARGUMENT / FAILED_PRECONDITION, the numbers do not multiply
  // out or the nodes ask for different ones; the text names each as its flag.
  [[nodiscard]] absl::StatusOr<Plan> AgreePlan(const PlanDefaults& defaults) const;

  // Tells the agent how far this rank is, for its status page. `step` counts
  // optimizer steps since the start of training; `total_steps` 0: unknown.
  absl::Status ReportProgress(std::int64_t step, std::int64_t total_steps,
                              double samples_per_s) const;

  // Tells the agent that a micro-step of this size ran out of memory (see
  // out_of_memory.h) in this optimizer step, and that the program will now exit
  // with a failure: ddlaunch then starts all workers again with a smaller micro-
  // batch, at no charge to --max-restarts. For programs that do not use
  // DataParallel::RunStep, which repeats the step in place.
  // Errors: INVALID_ARGUMENT, `error` is none of out of memory; UNAVAILABLE, the
  // agent is gone.
  absl::Status ReportOutOfMemory(const absl::Status& error, std::int64_t micro_batch_size,
                                 std::int64_t step) const;

  // Counts up on each call: a number that is equal on every rank when all make
  // the same calls in the same order. Libraries use it to name their keys.
  [[nodiscard]] std::int64_t NextSequence() const;

 private:
  friend struct internal::ContextAccess;
  struct State;
  explicit Context(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ddl

#endif  // DDL_CONTEXT_H_
