// `ddlaunch plan`: for each world, what a job would agree on that starts with it, as a
// table or as JSON. Nothing is started, nobody is met.
//
// The JSON is one object, {"request": {...}, "worlds": [{...}, ...]}. In "request" is
// what was asked for, by the flags' names with _ for -, and the policy. Each world has
// "world_size" and either "error", the reason why it has no plan with the nearest
// numbers that have one, or
//   global_batch_size, micro_batch_size, grad_accum_steps
//   rank_batch_sizes   the largest and the smallest share of a rank in a step
//   ranks_with_the_largest   so many, the first ones; the others have the smallest
//   even               micro x accumulation x world is the global batch; else the last
//                      micro-batches of a rank may be a sample smaller
//   learning_rate      null: no --base-lr
//   warmup_samples, warmup_steps, warmup_start_lr, total_samples, total_steps (null: not
//   known), lr_decay, lr_decay_samples, lr_decay_factor (null: not for this decay)
//   adam               null, or beta1, beta2, eps
//   hash               as DDL_PLAN_HASH of such a job
//   held               the names of the batch numbers that are as asked for
//   moved              of those that are not: {"name": {"asked": 48, "actual": 50}}
//   remark             one line in words where the global batch moved or its shares are
//                      uneven, else null
//   warnings           lines in words on what the numbers do not show, as of a micro-batch
//                      far below what fits, or a warm-up that outlasts the training
#ifndef DDLAUNCH_LAUNCHER_CLI_PLAN_COMMAND_H_
#define DDLAUNCH_LAUNCHER_CLI_PLAN_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/parse.h"

namespace ddl::cli {

// `args` after the word `plan`. A PrintAndExit: 0 where some world has a plan, else 2.
// Errors: INVALID_ARGUMENT, as for ParseCommandLine.
absl::StatusOr<ParseResult> ParsePlanCommand(const std::vector<std::string>& args,
                                             const Surroundings& surroundings);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_PLAN_COMMAND_H_
