// One optimizer step after the other, and what is said on the way.
#include "worker_sdk/examples/train_digits/trainer.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/base/status_macros.h"
#include "ddl/ddl.h"
#include "worker_sdk/examples/train_digits/audit.h"
#include "worker_sdk/examples/train_digits/checkpointing.h"
#include "worker_sdk/examples/train_digits/device_limit.h"
#include "worker_sdk/examples/train_digits/digits.h"
#include "worker_sdk/examples/train_digits/job.h"
#include "worker_sdk/examples/train_digits/metrics.h"
#include "worker_sdk/examples/train_digits/perceptron.h"

namespace ddl::digits {
namespace {

constexpr std::int64_t kGlobalBatch = 32;
constexpr double kBaseLr = 0.1;
constexpr std::int64_t kReports = 5;  // progress lines of a run

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- training --------------------------------------------------------------

// Adds the gradients of a micro-batch, as far as they fit the device.
absl::StatusOr<MicroResult> Compute(Job& job, std::span<const std::int64_t> micro_batch) {
  const std::size_t fit =
      SamplesThatFit(job.options, job.context.rank(), job.step + 1, micro_batch.size());
  MicroResult result;
  for (const std::int64_t index : micro_batch.first(fit)) {
    result.loss_sum += job.model.AddGradient(job.data.training[static_cast<std::size_t>(index)]);
  }
  if (fit < micro_batch.size()) {
    return DoesNotFit(micro_batch.size(), fit);
  }
  result.weight = static_cast<double>(micro_batch.size());
  return result;
}

// One optimizer step: micro-batches add up, one reduction, one update.
absl::StatusOr<StepMetrics> TrainStep(Job& job, const StepShare& share) {
  if (job.options.stop_rank == job.context.rank() && job.step == 0 && job.context.round() <= 1) {
    [[maybe_unused]] const int always_zero = std::raise(SIGSTOP);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(job.options.step_delay_ms));
  DDL_ASSIGN_OR_RETURN(const StepResult result,
                       job.parallel.RunStep(share, [&](std::span<const std::int64_t> micro_batch) {
                         return Compute(job, micro_batch);
                       }));
  // The schedule counts samples: those of the whole training before this step.
  const std::int64_t done = share.epoch * share.epoch_samples + share.consumed_before;
  const double rate = job.schedule.Rate(done, share.global_samples);
  job.model.Update(rate);
  ++job.step;
  DDL_RETURN_IF_ERROR(job.audit.Write(share.epoch, job.step, share.samples));
  return StepMetrics{job.step, share.epoch, result.mean_loss, rate, share.global_samples};
}

// The share of test images that the model gets right, over all ranks.
absl::StatusOr<double> Accuracy(Job& job) {
  const auto count = static_cast<std::int64_t>(job.data.test.size());
  const IndexRange mine = ShareOf(count, job.context.rank(), job.context.world_size());
  EvaluationTotals right;
  for (std::int64_t i = mine.begin; i < mine.end; ++i) {
    const Image& image = job.data.test[static_cast<std::size_t>(i)];
    right.Add(job.model.Classify(image) == image.label ? 1 : 0);
  }
  DDL_ASSIGN_OR_RETURN(const EvaluationResult result, right.Reduce(job.backend));
  return result.mean();
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

// What this program trains with unless ddlaunch's flags say otherwise. Shares may
// be uneven: gradients are weighted, so any world trains with the same numbers.
PlanDefaults Defaults(const Options& options, std::int64_t samples) {
  PlanDefaults defaults;
  defaults.global_batch_size = kGlobalBatch;
  defaults.batch_policy = BatchPolicy::kExact;
  defaults.base_lr = kBaseLr;
  defaults.epoch_samples = samples;
  if (options.epochs > 0) {
    defaults.total_samples = options.epochs * samples;
  }
  return defaults;
}

}  // namespace

absl::Status TrainDigits(const Options& options, const Context& context) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::string path = options.data.empty() ? DefaultPath() : options.data;
  DDL_ASSIGN_OR_RETURN(const DataSet data, Load(path, seed));
  const auto samples = static_cast<std::int64_t>(data.training.size());

  DDL_ASSIGN_OR_RETURN(const Plan plan, context.AgreePlan(Defaults(options, samples)));
  if (context.rank() == 0) {
    std::printf("plan %s: %s\n", plan.hash.c_str(), plan.ToString().c_str());
  }
  DDL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateBackend(context));
  DDL_ASSIGN_OR_RETURN(DistributedSampler sampler,
                       DistributedSampler::Create(samples, plan, context.rank(), seed));
  DDL_ASSIGN_OR_RETURN(const LrSchedule schedule, LrSchedule::Create(plan));
  Perceptron model(static_cast<int>(options.hidden), seed);
  DDL_ASSIGN_OR_RETURN(DataParallel parallel,
                       DataParallel::Create(context, plan, backend.get(), model.Parameters()));
  DDL_ASSIGN_OR_RETURN(Audit audit,
                       Audit::Open(options.audit_dir, context.rank(), context.round()));

  Job job{options, context, data, *backend, sampler, schedule, parallel, model, audit};
  DDL_RETURN_IF_ERROR(Resume(job));
  DDL_ASSIGN_OR_RETURN(MetricsFile metrics,
                       MetricsFile::Open(context.rank() == 0 ? options.metrics_out : "", job.step));
  DDL_RETURN_IF_ERROR(Train(job, metrics));
  DDL_RETURN_IF_ERROR(Finish(job, metrics));
  return backend->Close();
}

}  // namespace ddl::digits
