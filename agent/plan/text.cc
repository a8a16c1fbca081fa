// The plan and the request as text: for the hash, for people and for flags.
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/base/check.h"
#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

// The shortest decimal that reads back as the same double, whatever the locale.
std::string RoundTrip(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  DDL_CHECK(error == std::errc());
  return {buffer.data(), end};
}

// FNV-1a, 64 bits (Fowler, Noll, Vo). It guards against plans that differ by
// accident, not against an attacker.
std::uint64_t Fnv1a(std::string_view text) {
  constexpr std::uint64_t kOffsetBasis = 14695981039346656037U;
  constexpr std::uint64_t kPrime = 1099511628211U;
  std::uint64_t hash = kOffsetBasis;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= kPrime;
  }
  return hash;
}

// Its form is part of the wire contract: nodes compare hashes over it. A field
// that is added must change the version at its head.
std::string CanonicalText(const Plan& plan) {
  std::string text = "ddl-plan-1";
  text += " world=" + std::to_string(plan.world_size);
  text += " global=" + std::to_string(plan.global_batch_size);
  text += " micro=" + std::to_string(plan.micro_batch_size);
  text += " accumulation=" + std::to_string(plan.grad_accum_steps);
  text += " lr=" + (plan.learning_rate.has_value() ? RoundTrip(*plan.learning_rate) : "none");
  text += " warmup=" + std::to_string(plan.warmup_steps);
  return text;
}

void AppendFlag(std::string& text, std::string_view name, std::string_view value) {
  if (!text.empty()) {
    text += ' ';
  }
  text += "--";
  text += name;
  text += '=';
  text += value;
}

void AppendFlag(std::string& text, std::string_view name, std::optional<std::int64_t> value) {
  if (value.has_value()) {
    AppendFlag(text, name, std::string_view(std::to_string(*value)));
  }
}

}  // namespace

std::string Hash(const Plan& plan) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr int kTopNibbleShift = 60;
  constexpr int kNibbleBits = 4;
  const std::uint64_t hash = Fnv1a(CanonicalText(plan));
  std::string digits;
  for (int shift = kTopNibbleShift; shift >= 0; shift -= kNibbleBits) {
    digits.push_back(kDigits[(hash >> static_cast<unsigned>(shift)) & 0xFU]);
  }
  return digits;
}

std::string Describe(const Plan& plan) {
  std::string text = "global batch " + std::to_string(plan.global_batch_size) + " = micro " +
                     std::to_string(plan.micro_batch_size) + " x accumulation " +
                     std::to_string(plan.grad_accum_steps) + " x world " +
                     std::to_string(plan.world_size);
  if (plan.learning_rate.has_value()) {
    text += ", learning rate " + RoundTrip(*plan.learning_rate);
  }
  if (plan.warmup_steps > 0) {
    text += ", warm-up " + std::to_string(plan.warmup_steps) +
            (plan.warmup_steps == 1 ? " step" : " steps");
  }
  return text;
}

std::string Describe(const Request& request) {
  std::string text;
  AppendFlag(text, "global-batch-size", request.global_batch_size);
  AppendFlag(text, "micro-batch-size", request.micro_batch_size);
  AppendFlag(text, "max-micro-batch-size", request.max_micro_batch_size);
  AppendFlag(text, "grad-accum-steps", request.grad_accum_steps);
  if (request.base_lr.has_value()) {
    AppendFlag(text, "base-lr", std::string_view(RoundTrip(*request.base_lr)));
  }
  AppendFlag(text, "base-batch-size", request.base_batch_size);
  if (request.lr_scaling.has_value()) {
    AppendFlag(text, "lr-scaling", std::string_view(ToString(*request.lr_scaling)));
  }
  AppendFlag(text, "warmup-steps", request.warmup_steps);
  return text;
}

absl::StatusOr<LrScaling> ParseLrScaling(const std::string& text) {
  for (const LrScaling scaling : {LrScaling::kNone, LrScaling::kLinear, LrScaling::kSqrt}) {
    if (text == ToString(scaling)) {
      return scaling;
    }
  }
  return absl::InvalidArgumentError("--lr-scaling=" + text +
                                    " is not known; use none, linear or sqrt");
}

const char* ToString(LrScaling scaling) {
  switch (scaling) {
    case LrScaling::kNone:
      return "none";
    case LrScaling::kLinear:
      return "linear";
    case LrScaling::kSqrt:
      return "sqrt";
  }
  return "unknown";
}

}  // namespace ddl::plan
