// What a launcher's request lacks before the program has spoken: what of it can be
// judged, what is not in force, and what no program can mend.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/base/status_macros.h"
#include "agent/plan/batch.h"
#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/plan.h"
#include "agent/plan/rate.h"
#include "agent/plan/schedule.h"

namespace ddl::plan {
namespace {

bool IsScaled(const Request& request) {
  return request.lr_scaling.value_or(LrScaling::kNone) != LrScaling::kNone;
}

bool HasInterval(const Request& request) {
  return request.lr_decay_steps.has_value() || request.lr_decay_epochs.has_value();
}

bool HasWarmupOrDecay(std::string_view name) {
  return name == kWarmupRatio || name == kWarmupEpochs || name == kDecay || name == kDecaySteps ||
         name == kDecayEpochs || name == kDecayFactor;
}

// What a program could add at best, so that only contradictions are left.
Request Completed(const Request& launcher) {
  Request whole = launcher;
  const auto complete = [](auto& field, auto value) {
    if (!field.has_value()) {
      field = value;
    }
  };
  complete(whole.total_samples, 1);
  complete(whole.epoch_samples, 1);
  complete(whole.base_lr, 1);
  complete(whole.base_batch_size, 1);
  if (whole.scale_adam.value_or(false)) {
    complete(whole.lr_scaling, LrScaling::kSqrt);
  }
  if (HasInterval(whole) || whole.lr_decay_factor.has_value()) {
    complete(whole.lr_decay, LrDecay::kStep);
  }
  if (whole.lr_decay == LrDecay::kStep && !HasInterval(whole)) {
    whole.lr_decay_steps = 1;
  }
  return whole;
}

// ---- what is missing, for one flag that is not in force --------------------------

std::string MissingForRate(const Request& launcher, std::string_view name) {
  const bool adam = launcher.scale_adam.value_or(false) &&
                    (name == kScaleAdam || name == kBeta1 || name == kBeta2 || name == kEps);
  const bool rate =
      name == kBaseLr || name == kBaseBatch || name == kScaling || name == kWarmupStart;
  if (!adam && !rate) {
    return "";
  }
  if (!launcher.lr_scaling.has_value()) {
    if (adam) {
      return std::string(kScaling) + "=sqrt";
    }
    if (name == kBaseBatch) {
      return std::string(kScaling);
    }
    return name == kWarmupStart && launcher.base_lr.has_value() ? "a rate above it" : "";
  }
  Listing missing;
  if (!launcher.base_lr.has_value()) {
    missing.Add(std::string(kBaseLr));
  }
  if (!launcher.base_batch_size.has_value()) {
    missing.Add(std::string(kBaseBatch));
  }
  return IsScaled(launcher) && !missing.empty() ? missing.Text("and") + ": no learning rate is set"
                                                : "";
}

std::string MissingForDecay(const Request& launcher) {
  if (!launcher.lr_decay.has_value()) {
    return std::string(kDecay) + "=step";
  }
  if (*launcher.lr_decay != LrDecay::kStep) {
    return launcher.total_samples.has_value() ? "" : std::string(kTotal);
  }
  if (!HasInterval(launcher)) {
    return std::string(kDecaySteps) + " or " + std::string(kDecayEpochs);
  }
  return launcher.lr_decay_epochs.has_value() && !launcher.epoch_samples.has_value()
             ? std::string(kEpoch)
             : "";
}

std::string Missing(const Request& launcher, std::string_view name) {
  std::string missing;
  if (!HasWarmupOrDecay(name)) {
    missing = MissingForRate(launcher, name);
  } else if (name == kWarmupRatio) {
    missing = launcher.total_samples.has_value() ? "" : kTotal;
  } else if (name == kWarmupEpochs) {
    missing = launcher.epoch_samples.has_value() ? "" : kEpoch;
  } else {
    missing = MissingForDecay(launcher);
  }
  if (!missing.empty()) {
    return missing;
  }
  return launcher.has_batch() ? "what else the program gives" : "a batch size";
}

}  // namespace

Request WithoutGaps(const Request& request) {
  Request whole = request;
  if (!request.lr_scaling.has_value() ||
      (*request.lr_scaling != LrScaling::kNone &&
       !(request.base_lr.has_value() && request.base_batch_size.has_value()))) {
    // The rate that the program's scaling or base may make of it is not known.
    if (request.lr_scaling.has_value()) {
      whole.base_lr.reset();
    }
    whole.lr_scaling.reset();
    if (request.lr_scaling.has_value() ||
        (request.base_lr.has_value() && request.warmup_start_lr >= request.base_lr)) {
      whole.warmup_start_lr.reset();  // it may be below the rate yet
    }
    if (request.scale_adam.value_or(false)) {
      whole.adam_beta1.reset();
      whole.adam_beta2.reset();
      whole.adam_eps.reset();
      whole.scale_adam.reset();
    }
  }
  if (!request.total_samples.has_value()) {
    whole.warmup_ratio.reset();
  }
  if (!request.epoch_samples.has_value()) {
    whole.warmup_epochs.reset();
    whole.lr_decay_epochs.reset();
  }
  const bool has_interval = whole.lr_decay_steps.has_value() || whole.lr_decay_epochs.has_value();
  const LrDecay decay = request.lr_decay.value_or(LrDecay::kConstant);
  const bool complete = decay == LrDecay::kStep
                            ? has_interval
                            : decay == LrDecay::kConstant || request.total_samples.has_value();
  if (!request.lr_decay.has_value() || !complete) {
    whole.lr_decay.reset();
    whole.lr_decay_steps.reset();
    whole.lr_decay_epochs.reset();
    whole.lr_decay_factor.reset();
  }
  return whole;
}

absl::Status CheckCompletable(const Request& launcher) {
  DDL_RETURN_IF_ERROR(CheckBatch(launcher));
  if (!CapsAgree(launcher)) {
    return absl::InvalidArgumentError(WhyNoBatch(launcher, 1));
  }
  const Request whole = Completed(launcher);
  DDL_RETURN_IF_ERROR(CheckRate(whole));
  return CheckSchedule(whole);
}

std::vector<std::string> NotInForce(const Request& launcher, const Request& in_force) {
  // One line for all flags that lack the same.
  std::vector<std::pair<std::string, Listing>> lines;
  ForEachFlag([&](std::string_view name, auto field) {
    // The micro-batch and the accumulation give way to the global batch.
    const bool gives_way = name == kMicro || name == kAccumulation;
    const bool scales =
        name != kBaseBatch || IsScaled(in_force) || launcher.lr_scaling == LrScaling::kNone;
    if (!(launcher.*field).has_value() || gives_way || ((in_force.*field).has_value() && scales)) {
      return;
    }
    std::string missing = Missing(launcher, name);
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const auto& other) { return other.first == missing; });
    if (line == lines.end()) {
      line = lines.emplace(lines.end(), std::move(missing), Listing());
    }
    line->second.Add(FlagText(name, *(launcher.*field)));
  });
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (const auto& [missing, flags] : lines) {
    texts.push_back(flags.Text("and") + (flags.size() == 1 ? " needs " : " need ") + missing);
  }
  return texts;
}

}  // namespace ddl::plan
