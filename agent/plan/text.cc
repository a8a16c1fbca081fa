// The plan and the request as text: for the hash, for people and for flags.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "agent/plan/flag_names.h"
#include "agent/plan/number_text.h"
#include "agent/plan/numbers.h"
#include "agent/plan/plan.h"

namespace ddl::plan {
namespace {

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
  std::string text = "ddl-plan-2";
  text += " world=" + std::to_string(plan.world_size);
  text += " global=" + std::to_string(plan.global_batch_size);
  text += " micro=" + std::to_string(plan.micro_batch_size);
  text += " accumulation=" + std::to_string(plan.grad_accum_steps);
  text += " lr=" + (plan.learning_rate.has_value() ? RoundTrip(*plan.learning_rate) : "none");
  text += " warmup=" + std::to_string(plan.warmup_samples);
  text += " warmup_steps=" + std::to_string(plan.warmup_steps);
  text += " warmup_start_lr=" + RoundTrip(plan.warmup_start_lr);
  text += " total=" + std::to_string(plan.total_samples);
  text += " total_steps=" + std::to_string(plan.total_steps);
  text += std::string(" decay=") + ToString(plan.lr_decay);
  text += " decay_samples=" + std::to_string(plan.lr_decay_samples);
  text += " decay_factor=" + RoundTrip(plan.lr_decay_factor);
  text += " adam=";
  if (plan.adam.has_value()) {
    text += RoundTrip(plan.adam->beta1) + "," + RoundTrip(plan.adam->beta2) + "," +
            RoundTrip(plan.adam->eps);
  } else {
    text += "none";
  }
  return text;
}

// The word among `known` that `text` is: "--flag=x is not known; use a, b or c".
template <typename Word, std::size_t kCount>
absl::StatusOr<Word> ParseOneOf(std::string_view flag, const std::string& text,
                                const std::array<Word, kCount>& known) {
  std::string names;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (text == ToString(known[i])) {
      return known[i];
    }
    names += i == 0 ? "" : (i + 1 == kCount ? " or " : ", ");
    names += ToString(known[i]);
  }
  return absl::InvalidArgumentError(std::string(flag) + "=" + text + " is not known; use " + names);
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

std::string DescribeShares(const Plan& plan) {
  const std::int64_t larger = plan.global_batch_size % plan.world_size;
  const std::string most = " x " + std::to_string(RankBatchSize(plan, 0));
  return larger == 0 ? Ranks(plan.world_size) + most
                     : Ranks(larger) + most + " + " + std::to_string(plan.world_size - larger) +
                           " x " + std::to_string(RankBatchSize(plan, plan.world_size - 1));
}

std::string Describe(const Plan& plan) {
  std::string text = "global batch " + std::to_string(plan.global_batch_size) + " = ";
  if (plan.even()) {
    text += "micro " + std::to_string(plan.micro_batch_size) + " x accumulation " +
            std::to_string(plan.grad_accum_steps) + " x world " + std::to_string(plan.world_size);
  } else {
    const std::int64_t steps = CeilDivide(RankBatchSize(plan, 0), plan.micro_batch_size);
    text += DescribeShares(plan) + " samples, in " + std::to_string(steps) +
            (steps == 1 ? " micro-step"
                        : " micro-steps of up to " + std::to_string(plan.micro_batch_size));
  }
  if (plan.learning_rate.has_value()) {
    text += ", learning rate " + Rounded(*plan.learning_rate);
  }
  if (plan.warmup_steps > 0) {
    text += ", warm-up " + std::to_string(plan.warmup_steps) +
            (plan.warmup_steps == 1 ? " step" : " steps");
  }
  return text;
}

std::string Describe(const Request& request) {
  std::string text;
  ForEachFlag([&](std::string_view name, auto field) {
    if ((request.*field).has_value()) {
      text += (text.empty() ? "" : " ") + FlagText(name, *(request.*field));
    }
  });
  return text;
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

const char* ToString(BatchPolicy policy) {
  switch (policy) {
    case BatchPolicy::kFail:
      return "fail";
    case BatchPolicy::kNearest:
      return "nearest";
    case BatchPolicy::kExact:
      return "exact";
  }
  return "unknown";
}

const char* ToString(LrDecay decay) {
  switch (decay) {
    case LrDecay::kConstant:
      return "constant";
    case LrDecay::kStep:
      return "step";
    case LrDecay::kCosine:
      return "cosine";
    case LrDecay::kLinear:
      return "linear";
  }
  return "unknown";
}

absl::StatusOr<LrScaling> ParseLrScaling(const std::string& text) {
  return ParseOneOf(kScaling, text,
                    std::array{LrScaling::kNone, LrScaling::kLinear, LrScaling::kSqrt});
}

absl::StatusOr<BatchPolicy> ParseBatchPolicy(const std::string& text) {
  return ParseOneOf(kPolicy, text,
                    std::array{BatchPolicy::kFail, BatchPolicy::kNearest, BatchPolicy::kExact});
}

absl::StatusOr<LrDecay> ParseLrDecay(const std::string& text) {
  return ParseOneOf(
      kDecay, text,
      std::array{LrDecay::kConstant, LrDecay::kStep, LrDecay::kCosine, LrDecay::kLinear});
}

}  // namespace ddl::plan
