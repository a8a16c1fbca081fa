// What belongs into a checkpoint: weights, momentum, and the position in the data.
#include "worker_sdk/examples/train_digits/checkpointing.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/status_macros.h"

namespace ddl::digits {

absl::Status Save(Job& job) {
  if (job.options.checkpoint_dir.empty()) {
    return absl::OkStatus();
  }
  if (!job.options.audit_dir.empty()) {
    // What a checkpoint holds must be in the audit of every rank.
    DDL_RETURN_IF_ERROR(job.backend.Barrier());
  }
  if (job.context.rank() != 0) {
    return absl::OkStatus();
  }
  CheckpointState state;
  state.step = job.step;
  state.tensors["weights"] = job.model.weights();
  state.tensors["velocity"] = job.model.velocity();
  state.integers["epoch"] = job.sampler.epoch();
  state.integers["consumed"] = job.sampler.consumed();
  state.integers["seed"] = job.options.seed;
  state.integers["hidden"] = job.options.hidden;
  return CheckpointDirectory(job.options.checkpoint_dir).Save(state);
}

namespace {

absl::Status OfAnotherProgram(const std::string& what) {
  return absl::FailedPreconditionError(
      what + ": it was written by another program or release; use another --checkpoint-dir");
}

// Copied into place: DataParallel holds on to these arrays.
absl::Status Restore(const CheckpointState& state, const std::string& name,
                     std::vector<float>& values) {
  const auto tensor = state.tensors.find(name);
  const std::size_t there = tensor == state.tensors.end() ? 0 : tensor->second.size();
  if (there != values.size()) {
    return OfAnotherProgram("the checkpoint of step " + std::to_string(state.step) + " has " +
                            std::to_string(there) + " numbers of \"" + name +
                            "\", the model here " + std::to_string(values.size()));
  }
  std::copy(tensor->second.begin(), tensor->second.end(), values.begin());
  return absl::OkStatus();
}

}  // namespace

absl::Status Resume(Job& job) {
  if (job.options.checkpoint_dir.empty()) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(
      std::optional<CheckpointState> state,
      RestoreOnAllRanks(job.backend, CheckpointDirectory(job.options.checkpoint_dir)));
  if (!state.has_value()) {
    return absl::OkStatus();
  }
  if (state->integers["seed"] != job.options.seed ||
      state->integers["hidden"] != job.options.hidden) {
    return absl::FailedPreconditionError(
        "the checkpoints in " + job.options.checkpoint_dir +
        " are of a run with --seed=" + std::to_string(state->integers["seed"]) + " --hidden=" +
        std::to_string(state->integers["hidden"]) + "; use another --checkpoint-dir");
  }
  if (!state->integers.contains("epoch") || !state->integers.contains("consumed")) {
    return OfAnotherProgram("the checkpoint of step " + std::to_string(state->step) +
                            " does not say where in the data it was");
  }
  DDL_RETURN_IF_ERROR(Restore(*state, "weights", job.model.weights()));
  DDL_RETURN_IF_ERROR(Restore(*state, "velocity", job.model.velocity()));
  job.step = state->step;
  job.parallel.set_next_step(job.step + 1);
  DDL_RETURN_IF_ERROR(
      job.sampler.StartEpoch(state->integers["epoch"], state->integers["consumed"]));
  if (job.context.rank() == 0) {
    std::printf("resumed at step %lld: epoch %lld, %lld samples into it\n",
                static_cast<long long>(job.step), static_cast<long long>(job.sampler.epoch()) + 1,
                static_cast<long long>(job.sampler.consumed()));
  }
  return absl::OkStatus();
}

}  // namespace ddl::digits
