// train_bin: a data-parallel trainer on handwritten digits.
//
// Every rank runs this program. They agree on a plan, start from rank 0's
// weights, share each global batch, sum their gradients once per optimizer step
// and so stay equal, bit for bit. The result does not depend on how many ranks
// there are. After a failure ddlaunch starts all ranks again, and they resume
// from the last checkpoint, in mid-epoch if need be.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/base/status_macros.h"
#include "ddl/ddl.h"
#include "worker_sdk/examples/train_digits/digits.h"
#include "worker_sdk/examples/train_digits/metrics.h"
#include "worker_sdk/examples/train_digits/options.h"
#include "worker_sdk/examples/train_digits/perceptron.h"

namespace ddl::digits {
namespace {

constexpr std::int64_t kGlobalBatch = 32;
constexpr double kBaseLr = 0.1;
constexpr std::int64_t kReports = 5;  // progress lines of a run
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// All that training needs, made in Run.
struct Job {
  const Options& options;
  const Context& context;
  const DataSet& data;
  Backend& backend;
  DistributedSampler& sampler;
  const LrSchedule& schedule;
  DataParallel& parallel;
  Perceptron& model;
  const CheckpointDirectory& checkpoints;
  std::int64_t step = 0;  // optimizer steps done
};

// ---- checkpoints -----------------------------------------------------------

absl::Status Save(Job& job) {
  if (job.options.checkpoint_dir.empty() || job.context.rank() != 0) {
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
  return job.checkpoints.Save(state);
}

// Every rank gets the same checkpoint, or none.
absl::Status Resume(Job& job) {
  if (job.options.checkpoint_dir.empty()) {
    return absl::OkStatus();
  }
  DDL_ASSIGN_OR_RETURN(std::optional<CheckpointState> state,
                       RestoreOnAllRanks(job.backend, job.checkpoints));
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
  // Copied into place: DataParallel holds on to these arrays.
  std::vector<float>& weights = job.model.weights();
  std::copy_n(state->tensors["weights"].begin(), weights.size(), weights.begin());
  job.model.velocity() = state->tensors["velocity"];
  job.step = state->step;
  DDL_RETURN_IF_ERROR(
      job.sampler.StartEpoch(state->integers["epoch"], state->integers["consumed"]));
  if (job.context.rank() == 0) {
    std::printf("resumed at step %lld: epoch %lld, %lld samples into it\n",
                static_cast<long long>(job.step), static_cast<long long>(job.sampler.epoch()) + 1,
                static_cast<long long>(job.sampler.consumed()));
  }
  return absl::OkStatus();
}

// ---- training --------------------------------------------------------------

// One optimizer step: micro-batches add up, one reduction, one update.
absl::StatusOr<StepMetrics> TrainStep(Job& job, const StepShare& share) {
  std::this_thread::sleep_for(std::chrono::milliseconds(job.options.step_delay_ms));
  job.parallel.ZeroGradients();
  for (const std::span<const std::int64_t> micro_batch : share.micro_batches) {
    double loss_sum = 0;
    for (const std::int64_t index : micro_batch) {
      loss_sum += job.model.AddGradient(job.data.training[static_cast<std::size_t>(index)]);
    }
    DDL_RETURN_IF_ERROR(
        job.parallel.AddMicroBatch(loss_sum, static_cast<double>(micro_batch.size())));
  }
  DDL_ASSIGN_OR_RETURN(const StepResult result, job.parallel.FinishStep());
  // The schedule counts samples: those of the whole training before this step.
  const std::int64_t done = share.epoch * share.epoch_samples + share.consumed_before;
  const double rate = job.schedule.Rate(done, share.global_samples);
  job.model.Update(rate);
  ++job.step;
  return StepMetrics{job.step, job.sampler.epoch(), result.mean_loss, rate, share.global_samples};
}

// The share of test images that the model gets right, over all ranks.
absl::StatusOr<double> Accuracy(Job& job) {
  const auto count = static_cast<std::int64_t>(job.data.test.size());
  const IndexRange mine = ShareOf(count, job.context.rank(), job.context.world_size());
  double right = 0;
  for (std::int64_t i = mine.begin; i < mine.end; ++i) {
    const Image& image = job.data.test[static_cast<std::size_t>(i)];
    right += job.model.Classify(image) == image.label ? 1 : 0;
  }
  DDL_RETURN_IF_ERROR(job.backend.AllReduceSum(std::span(&right, 1)));
  return right / static_cast<double>(count);
}

// Progress since the last report.
struct Progress {
  Clock::time_point start = Clock::now();
  double loss_sum = 0;
  std::int64_t samples = 0;
};

absl::Status Report(Job& job, const Progress& progress) {
  constexpr double kPercent = 100;
  DDL_ASSIGN_OR_RETURN(const double accuracy, Accuracy(job));
  const auto samples = static_cast<double>(progress.samples);
  const double samples_per_s = samples / SecondsSince(progress.start);
  if (job.context.rank() == 0) {
    std::printf("epoch %lld/%lld: loss %.4f, accuracy %.2f %%, %.0f samples/s\n",
                static_cast<long long>(job.sampler.epoch()) + 1,
                static_cast<long long>(job.options.epochs), progress.loss_sum / samples,
                kPercent * accuracy, samples_per_s);
  }
  // For the agent's status page only: training does not depend on it.
  job.context
      .ReportProgress(job.step, job.options.epochs * job.sampler.steps_per_epoch(), samples_per_s)
      .IgnoreError();
  return absl::OkStatus();
}

absl::Status TrainEpoch(Job& job, MetricsFile& metrics, Progress& progress) {
  while (const std::optional<StepShare> share = job.sampler.Next()) {
    DDL_ASSIGN_OR_RETURN(const StepMetrics step, TrainStep(job, *share));
    progress.loss_sum += step.loss * static_cast<double>(step.samples);
    progress.samples += step.samples;
    DDL_RETURN_IF_ERROR(metrics.Write(step));
    const std::int64_t every = job.options.checkpoint_every;
    if (every > 0 && job.step % every == 0) {
      DDL_RETURN_IF_ERROR(Save(job));
    }
  }
  return Save(job);
}

absl::Status Train(Job& job, MetricsFile& metrics) {
  const std::int64_t epochs = job.options.epochs;
  const std::int64_t report_every = std::max<std::int64_t>(1, epochs / kReports);
  Progress progress;
  for (std::int64_t epoch = job.sampler.epoch(); epoch < epochs; ++epoch) {
    if (epoch != job.sampler.epoch()) {
      DDL_RETURN_IF_ERROR(job.sampler.StartEpoch(epoch));
    }
    DDL_RETURN_IF_ERROR(TrainEpoch(job, metrics, progress));
    const bool due = (epoch + 1) % report_every == 0 || epoch + 1 == epochs;
    if (due && progress.samples > 0) {
      DDL_RETURN_IF_ERROR(Report(job, progress));
      progress = Progress();
    }
  }
  return absl::OkStatus();
}

// ---- the end ---------------------------------------------------------------

absl::Status WriteWeights(const std::string& path, const std::vector<float>& weights) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): raw floats, as promised.
  out.write(reinterpret_cast<const char*>(weights.data()),
            static_cast<std::streamsize>(weights.size() * sizeof(float)));
  out.close();
  return out ? absl::OkStatus() : absl::UnknownError("cannot write the weights to " + path);
}

absl::Status Finish(Job& job, MetricsFile& metrics) {
  constexpr double kPercent = 100;
  DDL_ASSIGN_OR_RETURN(const double accuracy, Accuracy(job));
  if (job.context.rank() != 0) {
    return absl::OkStatus();
  }
  double squares = 0;
  for (const float weight : job.model.weights()) {
    squares += static_cast<double>(weight) * weight;
  }
  std::printf("done: accuracy %.2f %% after %lld steps\n", kPercent * accuracy,
              static_cast<long long>(job.step));
  if (!job.options.weights_out.empty()) {
    DDL_RETURN_IF_ERROR(WriteWeights(job.options.weights_out, job.model.weights()));
  }
  return metrics.Write(FinalMetrics{accuracy, job.step, job.context.world_size(),
                                    job.context.restart_count(), std::sqrt(squares)});
}

absl::Status Run(const Options& options, const Context& context) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::string path = options.data.empty() ? DefaultPath() : options.data;
  DDL_ASSIGN_OR_RETURN(const DataSet data, Load(path, seed));

  PlanDefaults defaults;
  defaults.global_batch_size = kGlobalBatch;
  defaults.base_lr = kBaseLr;
  DDL_ASSIGN_OR_RETURN(const Plan plan, context.AgreePlan(defaults));
  if (context.rank() == 0) {
    std::printf("plan %s: %s\n", plan.hash.c_str(), plan.ToString().c_str());
  }
  DDL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateBackend(context));
  DDL_ASSIGN_OR_RETURN(DistributedSampler sampler,
                       DistributedSampler::Create(static_cast<std::int64_t>(data.training.size()),
                                                  plan, context.rank(), seed));
  DDL_ASSIGN_OR_RETURN(const LrSchedule schedule, LrSchedule::Create(plan));
  Perceptron model(static_cast<int>(options.hidden), seed);
  DDL_ASSIGN_OR_RETURN(DataParallel parallel,
                       DataParallel::Create(backend.get(), model.Parameters()));
  const CheckpointDirectory checkpoints(options.checkpoint_dir);

  Job job{options, context, data, *backend, sampler, schedule, parallel, model, checkpoints};
  DDL_RETURN_IF_ERROR(Resume(job));
  DDL_ASSIGN_OR_RETURN(MetricsFile metrics,
                       MetricsFile::Open(context.rank() == 0 ? options.metrics_out : "", job.step));
  DDL_RETURN_IF_ERROR(Train(job, metrics));
  DDL_RETURN_IF_ERROR(Finish(job, metrics));
  return backend->Close();
}

int Main(const std::vector<std::string>& arguments) {
  // Whole lines, also into a pipe.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const absl::StatusOr<Options> options = ParseOptions(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "train_bin: %s\n", std::string(options.status().message()).c_str());
    return kExitUsage;
  }
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<Context> context = Context::Create();
  if (!context.ok()) {
    std::fprintf(stderr, "train_bin: %s\n", std::string(context.status().message()).c_str());
    return kExitFailure;
  }
  std::printf("rank %d of %d, restart %d\n", context->rank(), context->world_size(),
              context->restart_count());
  if (const absl::Status status = Run(*options, *context); !status.ok()) {
    std::fprintf(stderr, "train_bin: rank %d: %s\n", context->rank(),
                 std::string(status.message()).c_str());
    return kExitFailure;
  }
  return 0;
}

}  // namespace
}  // namespace ddl::digits

int main(int argc, char** argv) {
  return ddl::digits::Main(std::vector<std::string>(argv + 1, argv + argc));
}
