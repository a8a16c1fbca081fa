// A worker that trains a small linear model by DataParallel::RunStep, in ways that
// deserve advice. Usage: advice_probe MODE WEIGHTS [no-advice]
//   train      as it should be, for long enough that the noise scale is known
//   same       rank 1 takes the samples of rank 0
//   epochs     rank 1 never goes on to the next epoch
//   order      every epoch begins anew in the order of the first
//   unequal    rank r has 3 + r batches, of a loader of its own
//   unused     rank 1 gives the second parameter no gradient
//   batchnorm  the epoch's last step leaves a rank one sample
//   accumulate two micro-steps of 4 samples, on a device of 1000 bytes, 300 of them used
//   runs-out   the same, but rank 1 runs out of memory with 4 samples in step 20
// Rank 0 writes its weights to the file WEIGHTS; every rank says what it has done.
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/status_macros.h"
#include "ddl/ddl.h"

namespace {

constexpr std::int64_t kSamples = 480;
constexpr std::int64_t kShare = 8;  // of one rank in a step
constexpr std::uint64_t kSeed = 3;

// y = w x + b, on data with noise; two parameters of 16 and 1.
class Linear {
 public:
  static constexpr std::size_t kInputs = 16;

  // The sum of the samples' squared errors, whose gradients are added.
  double Add(std::span<const std::int64_t> samples, bool with_bias) {
    double loss = 0;
    for (const std::int64_t sample : samples) {
      double out = bias_[0];
      double target = 0;
      for (std::size_t i = 0; i < kInputs; ++i) {
        out += weights_[i] * Value(sample, i);
        target += (i % 2 == 0 ? 1 : -1) * Value(sample, i);
      }
      const double error = out - target - 2 * Value(sample, kInputs);
      for (std::size_t i = 0; i < kInputs; ++i) {
        weight_gradient_[i] += static_cast<float>(error * Value(sample, i));
      }
      bias_gradient_[0] += with_bias ? static_cast<float>(error) : 0;
      loss += error * error;
    }
    return loss;
  }

  void Update() {
    constexpr float kRate = 0.01F;
    for (std::size_t i = 0; i < kInputs; ++i) {
      weights_[i] -= kRate * weight_gradient_[i];
    }
    bias_[0] -= kRate * bias_gradient_[0];
  }

  std::vector<ddl::Parameter> Parameters() {
    return {{"weights", weights_, weight_gradient_}, {"bias", bias_, bias_gradient_}};
  }

  [[nodiscard]] std::string Text() const {
    std::string text;
    for (const float weight : weights_) {
      char digits[32];
      std::snprintf(digits, sizeof(digits), "%a\n", static_cast<double>(weight));
      text += digits;
    }
    return text;
  }

 private:
  // A number in -1 .. 1, the same for ever.
  static double Value(std::int64_t sample, std::size_t i) {
    constexpr std::uint64_t kSteps = 1U << 20U;
    const std::uint64_t random =
        ddl::DataSeed(static_cast<std::uint64_t>(sample), static_cast<int>(i), 0);
    return 2.0 * static_cast<double>(random % kSteps) / kSteps - 1;
  }

  std::vector<float> weights_ = std::vector<float>(kInputs);
  std::vector<float> weight_gradient_ = std::vector<float>(kInputs);
  std::vector<float> bias_ = std::vector<float>(1);
  std::vector<float> bias_gradient_ = std::vector<float>(1);
};

struct Probe {
  std::string mode;
  ddl::Context& context;
  ddl::Plan plan;
  ddl::DataParallel& parallel;
  Linear& model;
  std::int64_t steps = 0;
  double samples = 0;
};

absl::Status Step(Probe& probe, const ddl::StepShare& share) {
  const bool with_bias = probe.mode != "unused" || probe.context.rank() != 1;
  const bool runs_out =
      probe.mode == "runs-out" && probe.steps + 1 == 20 && probe.context.rank() == 1;
  DDL_ASSIGN_OR_RETURN(
      const ddl::StepResult result,
      probe.parallel.RunStep(
          share, [&](std::span<const std::int64_t> samples) -> absl::StatusOr<ddl::MicroResult> {
            if (runs_out && samples.size() > 2) {
              return ddl::OutOfMemory({}, "scripted");
            }
            return ddl::MicroResult{probe.model.Add(samples, with_bias),
                                    static_cast<double>(samples.size())};
          }));
  probe.model.Update();
  ++probe.steps;
  probe.samples += result.weight;
  return absl::OkStatus();
}

absl::Status TrainBySampler(Probe& probe) {
  const bool as_rank_zero = probe.mode == "same";
  const std::int64_t samples = probe.mode == "batchnorm" ? kSamples + 3 : kSamples;
  const bool is_long =
      probe.mode == "train" || probe.mode == "accumulate" || probe.mode == "runs-out";
  const std::int64_t epochs = is_long ? 8 : 2;
  DDL_ASSIGN_OR_RETURN(ddl::DistributedSampler sampler,
                       ddl::DistributedSampler::Create(
                           samples, probe.plan, as_rank_zero ? 0 : probe.context.rank(), kSeed));
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const bool stays =
        probe.mode == "order" || (probe.mode == "epochs" && probe.context.rank() == 1);
    DDL_RETURN_IF_ERROR(sampler.StartEpoch(stays ? 0 : epoch));
    while (const std::optional<ddl::StepShare> share = sampler.Next()) {
      DDL_RETURN_IF_ERROR(Step(probe, *share));
    }
  }
  return absl::OkStatus();
}

// Batches of two samples each.
absl::Status TrainByOwnLoader(Probe& probe) {
  constexpr std::int64_t kBatch = 2;
  const int rank = probe.context.rank();
  std::int64_t left = 3 + rank;
  for (std::int64_t next = std::int64_t{100} * rank;; next += kBatch, --left) {
    DDL_ASSIGN_OR_RETURN(const bool more, probe.parallel.AnyHasMore(left > 0));
    if (!more) {
      return absl::OkStatus();
    }
    const std::vector<std::int64_t> batch = {next, next + 1};
    ddl::StepShare share;
    if (left > 0) {
      share.samples = batch;
      share.micro_batches = {share.samples};
    }
    DDL_RETURN_IF_ERROR(Step(probe, share));
  }
}

absl::Status Run(const std::string& mode, const std::string& weights, bool advice) {
  DDL_ASSIGN_OR_RETURN(ddl::Context context, ddl::Context::Create());
  ddl::PlanDefaults defaults;
  defaults.global_batch_size = kShare * context.world_size();
  const bool accumulates = mode == "accumulate" || mode == "runs-out";
  if (accumulates) {
    defaults.micro_batch_size = kShare / 2;
  }
  DDL_ASSIGN_OR_RETURN(const ddl::Plan plan, context.AgreePlan(defaults));
  DDL_ASSIGN_OR_RETURN(const auto backend, ddl::CreateBackend(context));
  Linear model;
  ddl::DataParallelOptions options;
  options.advice.enabled = advice;
  options.advice.batch_norm = mode == "batchnorm";
  if (accumulates) {
    constexpr std::int64_t kDeviceBytes = 1000;
    options.advice.device_memory_bytes = kDeviceBytes;
    options.peak_memory_bytes = [] { return 3 * kDeviceBytes / 10; };
  }
  DDL_ASSIGN_OR_RETURN(
      ddl::DataParallel parallel,
      accumulates
          ? ddl::DataParallel::Create(context, plan, backend.get(), model.Parameters(), options)
          : ddl::DataParallel::Create(backend.get(), model.Parameters(), options));
  Probe probe{mode, context, plan, parallel, model};
  DDL_RETURN_IF_ERROR(mode == "unequal" ? TrainByOwnLoader(probe) : TrainBySampler(probe));
  std::printf("rank %d: %lld steps, %.0f samples\n", context.rank(),
              static_cast<long long>(probe.steps), probe.samples);
  if (context.rank() == 0) {
    std::ofstream(weights) << model.Text();
  }
  return backend->Close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    return 2;
  }
  const absl::Status status = Run(arguments[0], arguments[1], arguments.size() == 2);
  if (!status.ok()) {
    std::fprintf(stderr, "advice_probe: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
