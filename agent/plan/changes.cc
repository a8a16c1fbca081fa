// What a plan has that another one, or the request, has not: in words for the log.
#include <cmath>
#include <cstdint>
#include <string>

#include "agent/plan/batch.h"
#include "agent/plan/number_text.h"
#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

struct Words {
  Listing moved;
  Listing held;

  void Number(const std::string& name, std::int64_t before, std::int64_t after) {
    Text(name, std::to_string(before), std::to_string(after));
  }
  void Text(const std::string& name, const std::string& before, const std::string& after) {
    if (before == after) {
      held.Add(name + " " + after);
    } else {
      moved.Add(name + " " + before + " -> " + after);
    }
  }
  void Part(const std::string& name, bool same) { (same ? held : moved).Add(name); }
};

// "16", or "up to 16" where the last of a step are smaller.
std::string MicroText(const Plan& plan) {
  return (plan.even() ? "" : "up to ") + std::to_string(plan.micro_batch_size);
}

// "4.9", "488".
std::string Factor(double factor) {
  constexpr double kTen = 10;
  return Rounded(factor < kTen ? std::round(factor * kTen) / kTen : std::round(factor));
}

std::string RateText(const Plan& plan) {
  return plan.learning_rate.has_value() ? Rounded(*plan.learning_rate) : "none";
}

bool HasSchedule(const Plan& plan) {
  return plan.total_samples > 0 || plan.lr_decay != LrDecay::kConstant;
}

bool SameSchedule(const Plan& a, const Plan& b) {
  return a.total_samples == b.total_samples && a.lr_decay == b.lr_decay &&
         a.lr_decay_samples == b.lr_decay_samples && a.lr_decay_factor == b.lr_decay_factor;
}

std::string WhyAnotherGlobal(const Request& request, const Plan& plan, std::int64_t asked) {
  const std::string text = "global batch " + std::to_string(asked);
  const std::string ranks = Ranks(plan.world_size);
  if (asked < plan.world_size) {
    return text + " is less than a sample for each of " + ranks;
  }
  if (asked % plan.world_size != 0) {
    return text + " cannot be shared evenly by " + ranks;
  }
  if (request.grad_accum_steps == plan.grad_accum_steps) {
    return text + " cannot be shared evenly by " + ranks + " in " +
           std::to_string(plan.grad_accum_steps) + " micro-steps";
  }
  return text + " cannot be split evenly on " + ranks + " into micro-batches near the " +
         std::to_string(request.micro_batch_size.value_or(CapOf(request))) + " that fit";
}

}  // namespace

std::string Changes(const Plan& before, const Plan& after) {
  Words words;
  if (before.world_size != after.world_size) {
    words.Number("world", before.world_size, after.world_size);
  }
  words.Number("global batch", before.global_batch_size, after.global_batch_size);
  words.Text("micro-batch", MicroText(before), MicroText(after));
  words.Number("accumulation", before.grad_accum_steps, after.grad_accum_steps);
  if (before.learning_rate != after.learning_rate) {
    words.moved.Add("learning rate " + RateText(before) + " -> " + RateText(after));
  } else if (after.learning_rate.has_value()) {
    words.held.Add("learning rate " + RateText(after));
  }
  if (before.warmup_samples > 0 || after.warmup_samples > 0) {
    words.Part("warm-up", before.warmup_samples == after.warmup_samples &&
                              before.warmup_start_lr == after.warmup_start_lr);
  }
  if (HasSchedule(before) || HasSchedule(after)) {
    words.Part("schedule", SameSchedule(before, after));
  }
  if (before.adam.has_value() || after.adam.has_value()) {
    words.Part("Adam's numbers", before.adam == after.adam);
  }
  if (words.moved.empty()) {
    return "nothing moved: " + words.held.Text("and") + " held";
  }
  return words.moved.Text("and") +
         (words.held.empty() ? std::string() : "; " + words.held.Text("and") + " held");
}

std::string Compare(const Request& request, const Plan& plan) {
  const std::string ranks = Ranks(plan.world_size);
  const std::int64_t asked = request.global_batch_size.value_or(plan.global_batch_size);
  if (plan.global_batch_size == asked) {
    const std::int64_t share = plan.global_batch_size / plan.world_size;
    return plan.global_batch_size % plan.world_size == 0
               ? ""
               : "global batch " + std::to_string(asked) + " is shared unevenly by " + ranks +
                     ": " + std::to_string(share + 1) + " samples for the first " +
                     std::to_string(plan.global_batch_size % plan.world_size) + ", " +
                     std::to_string(share) + " for the others (--batch-policy=exact)";
  }
  std::string text = WhyAnotherGlobal(request, plan, asked) + ": " +
                     std::to_string(plan.global_batch_size) + " is used";
  if (asked < plan.world_size) {
    text += ", " +
            Factor(static_cast<double>(plan.global_batch_size) / static_cast<double>(asked)) +
            " times as many";
  }
  text += " (--batch-policy=nearest)";
  if (plan.learning_rate.has_value() &&
      request.lr_scaling.value_or(LrScaling::kNone) != LrScaling::kNone) {
    text += ", learning rate " + RateText(plan) + " for it";
  }
  return text;
}

}  // namespace ddl::plan
