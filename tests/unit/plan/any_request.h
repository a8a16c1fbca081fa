// Random requests, and a refusal's alternatives put into the request: for the
// properties that hold for all of them.
#ifndef DDLAUNCH_TESTS_UNIT_PLAN_ANY_REQUEST_H_
#define DDLAUNCH_TESTS_UNIT_PLAN_ANY_REQUEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "agent/plan/plan.h"

namespace ddl::plan {

// A seed of its own for each property; the run is the same each time.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::int64_t Between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine_);
  }
  bool OneIn(std::int64_t n) { return Between(1, n) == 1; }
  // Each number of binary digits is as likely as any other.
  std::int64_t UpTo(int bits) {
    return Between(1, std::int64_t{1} << static_cast<unsigned>(Between(0, bits)));
  }
  double Part() { return std::uniform_real_distribution<double>(0, 1)(engine_); }
  template <typename Word, std::size_t kCount>
  Word Of(const Word (&words)[kCount]) {
    return words[Between(0, kCount - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

inline constexpr BatchPolicy kPolicies[] = {BatchPolicy::kFail, BatchPolicy::kNearest,
                                            BatchPolicy::kExact};

struct Trial {
  Request request;
  std::int64_t world = 1;
};

// Batch numbers in their ranges; the caps do not contradict each other.
inline Trial AnyBatch(Random& random) {
  const bool small = random.OneIn(2);
  const int global_bits = small ? 8 : 40;
  const int part_bits = small ? 4 : 32;
  Trial trial;
  Request& request = trial.request;
  trial.world = random.UpTo(small ? 4 : 40);
  const std::int64_t given = random.Between(1, 7);
  if ((given & 1) != 0) {
    request.global_batch_size = random.UpTo(global_bits);
  }
  if ((given & 2) != 0) {
    request.micro_batch_size = random.UpTo(part_bits);
  }
  if ((given & 4) != 0) {
    request.grad_accum_steps = random.UpTo(part_bits);
  }
  if (random.OneIn(2)) {
    request.max_micro_batch_size =
        std::max(random.UpTo(part_bits), request.micro_batch_size.value_or(1));
  }
  if (random.OneIn(4)) {
    const std::int64_t most = request.micro_batch_size.value_or(
        request.max_micro_batch_size.value_or(std::int64_t{1} << 32U));
    request.min_micro_batch_size = random.Between(1, most);
  }
  if (!random.OneIn(4)) {
    request.batch_policy = random.Of(kPolicies);
  }
  return trial;
}

inline void AddRate(Random& random, Request& request) {
  request.base_lr = random.Part() + 1e-6;
  request.base_batch_size = random.UpTo(20);
  request.lr_scaling = random.Of({LrScaling::kNone, LrScaling::kLinear, LrScaling::kSqrt});
  if (random.OneIn(3)) {
    request.total_samples = random.UpTo(50);
  }
  if (random.OneIn(3)) {
    request.epoch_samples = random.UpTo(50);
  }
  switch (random.Between(0, 3)) {
    case 1:
      request.warmup_steps = random.UpTo(30) - 1;
      break;
    case 2:
      request.warmup_ratio = random.Part();
      break;
    case 3:
      request.warmup_epochs = random.Part() * 10;
      break;
    default:
      break;
  }
  if (random.OneIn(4)) {
    request.warmup_start_lr = random.Part();
  }
  if (random.OneIn(2)) {
    request.lr_decay =
        random.Of({LrDecay::kConstant, LrDecay::kStep, LrDecay::kCosine, LrDecay::kLinear});
    if (request.lr_decay == LrDecay::kStep) {
      request.lr_decay_steps = random.UpTo(30);
    }
  }
  if (random.OneIn(4)) {
    request.adam_beta1 = random.Part();
    request.adam_beta2 = 1 - random.Part() * 0.01 - 1e-9;
    request.scale_adam = random.OneIn(2);
  }
}

inline bool LacksSomething(const std::string& refusal) {
  return refusal.find("give it too") != std::string::npos ||
         refusal.find("alone: no batch follows") != std::string::npos;
}

// ---- a refusal's alternatives, put into the request -----------------------------------

inline void SetFlag(Request& request, const std::string& name, const std::string& value) {
  const auto set = [&](const char* flag, auto Request::*field, auto parse) {
    if (name == flag) {
      request.*field = parse(value);
      return true;
    }
    return false;
  };
  const auto count = [](const std::string& text) { return std::stoll(text); };
  const auto number = [](const std::string& text) { return std::stod(text); };
  const bool known = set("--global-batch-size", &Request::global_batch_size, count) ||
                     set("--micro-batch-size", &Request::micro_batch_size, count) ||
                     set("--max-micro-batch-size", &Request::max_micro_batch_size, count) ||
                     set("--min-micro-batch-size", &Request::min_micro_batch_size, count) ||
                     set("--grad-accum-steps", &Request::grad_accum_steps, count) ||
                     set("--warmup-steps", &Request::warmup_steps, count) ||
                     set("--warmup-ratio", &Request::warmup_ratio, number) ||
                     set("--warmup-epochs", &Request::warmup_epochs, number) ||
                     set("--warmup-start-lr", &Request::warmup_start_lr, number) ||
                     set("--lr-decay-steps", &Request::lr_decay_steps, count) ||
                     set("--lr-decay-epochs", &Request::lr_decay_epochs, number) ||
                     set("--batch-policy", &Request::batch_policy,
                         [](const std::string& text) { return *ParseBatchPolicy(text); }) ||
                     set("--lr-scaling", &Request::lr_scaling,
                         [](const std::string& text) { return *ParseLrScaling(text); }) ||
                     set("--lr-decay", &Request::lr_decay,
                         [](const std::string& text) { return *ParseLrDecay(text); });
  ASSERT_TRUE(known) << name;
}

// "...; nearest: --a=1 or 2, or --b=3 without --c and --d, or without --e".
inline std::vector<Request> AlternativesIn(const Request& request, const std::string& refusal) {
  constexpr const char* kNearest = "nearest: ";
  const std::size_t at = refusal.rfind(kNearest);
  std::vector<Request> alternatives;
  if (at == std::string::npos) {
    return alternatives;
  }
  static const std::regex word(
      "(--[a-z0-9-]+)=([^ ,]+)|(, or )?without (--[a-z-]+)(?: and (--[a-z-]+))?| or ([^ ,-][^ "
      ",]*)");
  std::string name;
  for (auto it = std::sregex_iterator(refusal.begin() + static_cast<std::ptrdiff_t>(at),
                                      refusal.end(), word);
       it != std::sregex_iterator(); ++it) {
    const std::smatch& match = *it;
    if (match[4].matched) {
      // ", or without --a" stands alone; "--b=1 without --a" does not.
      if (alternatives.empty() || match[3].matched) {
        alternatives.push_back(request);
      }
      for (const auto& without : {match[4].str(), match[5].str()}) {
        if (without == "--micro-batch-size") {
          alternatives.back().micro_batch_size.reset();
        } else if (without == "--grad-accum-steps") {
          alternatives.back().grad_accum_steps.reset();
        } else if (without == "--scale-adam") {
          alternatives.back().scale_adam.reset();
        }
      }
      continue;
    }
    name = match[1].matched ? match[1].str() : name;
    alternatives.push_back(request);
    SetFlag(alternatives.back(), name, match[1].matched ? match[2].str() : match[6].str());
  }
  return alternatives;
}

// ---- any number at all --------------------------------------------------------------------

inline std::int64_t AnyInteger(Random& random) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kEdges[] = {kMin,
                                     -1,
                                     0,
                                     1,
                                     2,
                                     1'000'000,
                                     1'000'000'000'000,
                                     (std::int64_t{1} << 32U) - 5,
                                     std::int64_t{1} << 32U,
                                     std::int64_t{1} << 40U,
                                     (std::int64_t{1} << 40U) + 1,
                                     std::int64_t{1} << 50U,
                                     kMax};
  return random.OneIn(2) ? random.Of(kEdges) : random.UpTo(62);
}

inline double AnyDouble(Random& random) {
  constexpr double kEdges[] = {0.0,
                               -0.0,
                               -1.0,
                               1.0,
                               0.9,
                               std::numeric_limits<double>::denorm_min(),
                               std::numeric_limits<double>::max(),
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};
  return random.OneIn(2) ? random.Of(kEdges) : std::exp((random.Part() - 0.5) * 100);
}

template <typename Value, typename Make>
void Perhaps(Random& random, std::optional<Value>& field, Make make) {
  if (random.OneIn(3)) {
    field = make(random);
  }
}

inline Request AnyRequest(Random& random) {
  Request request;
  for (auto* const field :
       {&request.global_batch_size, &request.micro_batch_size, &request.max_micro_batch_size,
        &request.min_micro_batch_size, &request.grad_accum_steps, &request.base_batch_size,
        &request.total_samples, &request.epoch_samples, &request.warmup_steps,
        &request.lr_decay_steps}) {
    Perhaps(random, *field, AnyInteger);
  }
  for (auto* const field :
       {&request.base_lr, &request.warmup_ratio, &request.warmup_epochs, &request.warmup_start_lr,
        &request.lr_decay_epochs, &request.lr_decay_factor, &request.adam_beta1,
        &request.adam_beta2, &request.adam_eps}) {
    Perhaps(random, *field, AnyDouble);
  }
  Perhaps(random, request.batch_policy, [](Random& r) { return r.Of(kPolicies); });
  Perhaps(random, request.lr_scaling, [](Random& r) {
    return r.Of({LrScaling::kNone, LrScaling::kLinear, LrScaling::kSqrt});
  });
  Perhaps(random, request.lr_decay, [](Random& r) {
    return r.Of({LrDecay::kConstant, LrDecay::kStep, LrDecay::kCosine, LrDecay::kLinear});
  });
  Perhaps(random, request.scale_adam, [](Random& r) { return r.OneIn(2); });
  return request;
}

}  // namespace ddl::plan

#endif  // DDLAUNCH_TESTS_UNIT_PLAN_ANY_REQUEST_H_
