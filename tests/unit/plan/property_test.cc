// What must hold for every request: millions of random ones, half of them of small
// numbers, where the coincidences are, the others up to the limits and beyond.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "agent/plan/divisors.h"
#include "agent/plan/plan.h"
#include "tests/unit/plan/any_request.h"

namespace ddl::plan {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRequests = 60'000;
#else
constexpr int kRequests = 1'200'000;
#endif

// ---- the properties --------------------------------------------------------------------

void ExpectIdentity(const Trial& trial, const Plan& plan) {
  const Request& request = trial.request;
  const std::int64_t share = (plan.global_batch_size + plan.world_size - 1) / plan.world_size;
  ASSERT_EQ(plan.world_size, trial.world);
  ASSERT_GE(plan.micro_batch_size, 1);
  ASSERT_GE(plan.grad_accum_steps, 1);
  const bool lesson = request.learned_max_micro_batch_size.has_value();
  if (request.batch_policy == BatchPolicy::kExact
          ? lesson || request.global_batch_size.has_value()
          : lesson && request.uneven_micro_steps.value_or(false)) {
    // Enough micro-steps for the largest share, and no whole one too many.
    ASSERT_GE(plan.micro_batch_size * plan.grad_accum_steps, share);
    ASSERT_LT((plan.micro_batch_size - 1) * plan.grad_accum_steps, share);
    const std::int64_t larger = plan.global_batch_size % plan.world_size;
    ASSERT_EQ(RankBatchSize(plan, 0), share);
    ASSERT_EQ(
        larger * share + (plan.world_size - larger) * RankBatchSize(plan, plan.world_size - 1),
        plan.global_batch_size);
  } else {
    ASSERT_TRUE(plan.even());
    ASSERT_EQ(plan.micro_batch_size * plan.grad_accum_steps * plan.world_size,
              plan.global_batch_size);
  }
  ASSERT_LE(plan.micro_batch_size, request.max_micro_batch_size.value_or(plan.micro_batch_size));
}

std::int64_t CapOf(const Request& request) {
  return request.micro_batch_size.value_or(
      request.max_micro_batch_size.value_or(std::int64_t{1} << 32U));
}

// A share has a divisor near the cap: in at most twice the fewest micro-steps, and not
// below the floor.
bool SplitsNear(const Request& request, std::int64_t share) {
  const std::int64_t cap = CapOf(request);
  const std::int64_t micro = Divisors(share).AtMost(cap);
  return share / micro <= 2 * ((share + cap - 1) / cap) &&
         micro >= std::min(request.min_micro_batch_size.value_or(1), share);
}

// kNearest with a free accumulation: near what fits and not below the floor, whether the
// global batch moved for it or not.
void ExpectNear(const Request& request, const Plan& plan) {
  const std::int64_t asked = *request.global_batch_size;
  const std::int64_t share = (asked + plan.world_size - 1) / plan.world_size;
  const std::int64_t cap = CapOf(request);
  ASSERT_LE(plan.grad_accum_steps, 2 * ((share + cap - 1) / cap));
  ASSERT_LE(plan.micro_batch_size, cap);
  if (plan.grad_accum_steps > 1) {
    ASSERT_GE(plan.micro_batch_size, request.min_micro_batch_size.value_or(1));
  }
  if (asked % plan.world_size == 0) {
    ASSERT_EQ(plan.global_batch_size == asked, SplitsNear(request, share));
    ASSERT_LT(std::abs(plan.global_batch_size - asked) / plan.world_size, cap);
  }
}

// What was given is what is had, as far as the policy promises it.
void ExpectHeld(const Trial& trial, const Plan& plan) {
  const Request& request = trial.request;
  const BatchPolicy policy = request.batch_policy.value_or(BatchPolicy::kFail);
  const std::int64_t asked = request.global_batch_size.value_or(plan.global_batch_size);
  const bool free = !request.grad_accum_steps.has_value() || request.micro_batch_size.has_value();
  const bool all = request.grad_accum_steps.has_value() && request.micro_batch_size.has_value();
  if (policy != BatchPolicy::kNearest) {
    ASSERT_EQ(plan.global_batch_size, asked);
  } else if (request.global_batch_size.has_value() && free &&
             !(all &&
               *request.micro_batch_size * *request.grad_accum_steps * trial.world == asked)) {
    ExpectNear(request, plan);
  }
  if (policy == BatchPolicy::kFail && request.global_batch_size.has_value()) {
    ASSERT_GE(plan.micro_batch_size,
              std::min(request.min_micro_batch_size.value_or(1), asked / trial.world));
  }
  if (policy == BatchPolicy::kFail || !request.global_batch_size.has_value()) {
    ASSERT_EQ(plan.micro_batch_size, request.micro_batch_size.value_or(plan.micro_batch_size));
    ASSERT_EQ(plan.grad_accum_steps, request.grad_accum_steps.value_or(plan.grad_accum_steps));
  } else if (!free) {
    ASSERT_EQ(plan.grad_accum_steps, *request.grad_accum_steps);
  } else if (request.micro_batch_size.has_value()) {
    ASSERT_LE(plan.micro_batch_size, *request.micro_batch_size);
  }
}

TEST(SolveProperty, AnyBatch_IdentityAndWhatIsHeld_OrAlternativesThatAreAccepted) {
  Random random(1);
  int solved = 0;
  int alternatives = 0;
  for (int i = 0; i < kRequests; ++i) {
    const Trial trial = AnyBatch(random);
    SCOPED_TRACE(Describe(trial.request) + " on " + std::to_string(trial.world));
    const auto plan = Solve(trial.request, trial.world);
    if (plan.ok()) {
      ++solved;
      ExpectIdentity(trial, *plan);
      ExpectHeld(trial, *plan);
    } else if (const std::string refusal(plan.status().message()); !LacksSomething(refusal)) {
      // Text is slow: every fourth will do.
      if (i % 4 == 0) {
        const std::vector<Request> others = AlternativesIn(trial.request, refusal);
        ASSERT_FALSE(others.empty()) << refusal;
        for (const Request& other : others) {
          ASSERT_TRUE(Solve(other, trial.world).ok()) << refusal << "\n" << Describe(other);
          ++alternatives;
        }
      }
    }
    if (HasFatalFailure()) {
      return;
    }
  }
  EXPECT_GT(solved, kRequests / 4);
  EXPECT_GT(alternatives, kRequests / 20);
}

// kFail may split a share far below what fits; it never does so without a word.
TEST(WarningsProperty, MicroFarBelowWhatFits_IsSaidAndTheBatchNamedIsBetter) {
  Random random(9);
  int said = 0;
  for (int i = 0; i < kRequests / 20; ++i) {
    Request request;
    request.global_batch_size = random.UpTo(12);
    request.max_micro_batch_size = random.UpTo(6);
    request.batch_policy = BatchPolicy::kFail;
    const std::int64_t world = random.UpTo(3);
    const auto plan = Solve(request, world);
    if (!plan.ok()) {
      continue;
    }
    const std::vector<std::string> warnings = Warnings(request, *plan);
    const bool far =
        plan->grad_accum_steps > 1 && plan->micro_batch_size <= *request.max_micro_batch_size / 2;
    ASSERT_EQ(warnings.size(), far ? 1U : 0U) << Describe(request) << " on " << world;
    static const std::regex number("--global-batch-size=([0-9]+)");
    std::smatch match;
    if (far && std::regex_search(warnings[0], match, number)) {
      request.global_batch_size = std::stoll(match[1]);
      const auto better = Solve(request, world);
      ASSERT_TRUE(better.ok()) << better.status();
      ASSERT_GT(better->micro_batch_size, plan->micro_batch_size) << warnings[0];
      ++said;
    }
  }
  EXPECT_GT(said, kRequests / 2000);
}

// A lesson moves the split and nothing else, at any world; a split below the floor, or
// far below what fits, is said.
TEST(LessonProperty, AnyWorld_OnlyTheSplitMovesAndAPoorOneIsSaid) {
  Random random(10);
  int poor = 0;
  for (int i = 0; i < kRequests / 4; ++i) {
    Trial trial = AnyBatch(random);
    const auto before = Solve(trial.request, trial.world);
    if (!before.ok()) {
      continue;
    }
    Request& request = trial.request;
    const std::int64_t floor = request.min_micro_batch_size.value_or(1);
    const std::int64_t most = std::max(floor, random.UpTo(random.OneIn(2) ? 5 : 32));
    request.learned_max_micro_batch_size = most;
    request.uneven_micro_steps = random.OneIn(2);
    SCOPED_TRACE(Describe(request) + " learned " + std::to_string(most) + " on " +
                 std::to_string(trial.world));
    const auto plan = Solve(request, trial.world);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ExpectIdentity(trial, *plan);
    ASSERT_EQ(plan->global_batch_size, before->global_batch_size);
    ASSERT_LE(plan->micro_batch_size, most);
    if (before->micro_batch_size > most) {
      if (*request.uneven_micro_steps || request.batch_policy == BatchPolicy::kExact) {
        ASSERT_GE(2 * plan->micro_batch_size, most);
      } else if (plan->micro_batch_size <= most / 2 || plan->micro_batch_size < floor) {
        ASSERT_FALSE(Warnings(request, *plan).empty());
        ++poor;
      }
    }
    if (HasFatalFailure()) {
      return;
    }
  }
  EXPECT_GT(poor, kRequests / 1000);
}

TEST(SolveProperty, CapsThatContradict_AreSettledOneByOne) {
  Random random(2);
  for (int i = 0; i < kRequests / 20; ++i) {
    Request request;
    request.global_batch_size = random.UpTo(10);
    request.micro_batch_size = random.UpTo(5);
    request.max_micro_batch_size = random.UpTo(5);
    request.min_micro_batch_size = random.UpTo(5);
    const std::int64_t world = random.UpTo(4);
    // No more faults than pairs of caps, and the batch.
    for (int faults = 0;; ++faults) {
      ASSERT_LE(faults, 4) << Describe(request);
      const auto plan = Solve(request, world);
      if (plan.ok()) {
        break;
      }
      const std::string refusal(plan.status().message());
      const std::vector<Request> others = AlternativesIn(request, refusal);
      ASSERT_FALSE(others.empty()) << refusal;
      request = others[static_cast<std::size_t>(
          random.Between(0, static_cast<std::int64_t>(others.size()) - 1))];
    }
  }
}

TEST(SolveProperty, RateAndSchedule_FollowTheActualGlobalOnly) {
  Random random(3);
  int compared = 0;
  for (int i = 0; i < kRequests / 4; ++i) {
    Trial trial = AnyBatch(random);
    AddRate(random, trial.request);
    const auto plan = Solve(trial.request, trial.world);
    if (!plan.ok()) {
      continue;
    }
    // The same global batch by one rank's micro-step, with the lengths in samples.
    Request other = trial.request;
    other.batch_policy = BatchPolicy::kFail;
    other.micro_batch_size.reset();
    other.grad_accum_steps.reset();
    other.max_micro_batch_size.reset();
    other.min_micro_batch_size.reset();
    other.global_batch_size = plan->global_batch_size;
    const bool same_asked = trial.request.global_batch_size.value_or(plan->global_batch_size) ==
                            plan->global_batch_size;
    const auto alone = Solve(other, plan->global_batch_size);
    if (!same_asked) {
      if (alone.ok()) {
        ASSERT_EQ(alone->learning_rate, plan->learning_rate);
        ASSERT_EQ(alone->adam, plan->adam);
      }
      continue;
    }
    ASSERT_TRUE(alone.ok()) << alone.status() << "\n" << Describe(trial.request);
    Plan expected = *plan;
    expected.world_size = alone->world_size;
    expected.micro_batch_size = alone->micro_batch_size;
    expected.grad_accum_steps = alone->grad_accum_steps;
    ASSERT_EQ(*alone, expected) << Describe(trial.request);
    ++compared;
  }
  EXPECT_GT(compared, kRequests / 40);
}

TEST(SolveProperty, RateRefused_NamesAlternativesThatAreAccepted) {
  Random random(4);
  int alternatives = 0;
  for (int i = 0; i < kRequests / 4; ++i) {
    Trial trial = AnyBatch(random);
    trial.request.global_batch_size.reset();
    if (!Solve(trial.request, trial.world).ok()) {
      continue;
    }
    AddRate(random, trial.request);
    for (int faults = 0;; ++faults) {
      const auto plan = Solve(trial.request, trial.world);
      if (plan.ok() || LacksSomething(std::string(plan.status().message()))) {
        break;
      }
      // One fault each of the rate, Adam, the warm-up's length and start, the decay's
      // length and end.
      ASSERT_LT(faults, 6) << plan.status();
      const std::string refusal(plan.status().message());
      const std::vector<Request> others = AlternativesIn(trial.request, refusal);
      ASSERT_FALSE(others.empty()) << refusal;
      for (const Request& other : others) {
        const auto solved = Solve(other, trial.world);
        ASSERT_TRUE(solved.ok() || solved.status().message() != plan.status().message()) << refusal;
        ++alternatives;
      }
      trial.request = others[static_cast<std::size_t>(
          random.Between(0, static_cast<std::int64_t>(others.size()) - 1))];
    }
  }
  EXPECT_GT(alternatives, kRequests / 200);
}

// A world that shares the global batch evenly keeps it, unless the policy finds no split
// of a share that the floor or what fits allows.
bool HoldsAt(const Request& held, std::int64_t world) {
  const std::int64_t share = *held.global_batch_size / world;
  const BatchPolicy policy = held.batch_policy.value_or(BatchPolicy::kFail);
  return policy == BatchPolicy::kExact ||
         (policy == BatchPolicy::kNearest
              ? SplitsNear(held, share)
              : Divisors(share).AtMost(CapOf(held)) >=
                    std::min(held.min_micro_batch_size.value_or(1), share));
}

// The schedule of a training whose world changes: samples never move.
TEST(HoldGlobalProperty, OtherWorld_KeepsTheBatchWhereItCanAndTheSamplesAlways) {
  Random random(5);
  int changed = 0;
  for (int i = 0; i < kRequests / 4; ++i) {
    Trial trial = AnyBatch(random);
    AddRate(random, trial.request);
    const auto before = Solve(trial.request, trial.world);
    if (!before.ok()) {
      continue;
    }
    const std::int64_t world = random.Between(1, 2 * trial.world);
    const Request held = HoldGlobal(trial.request, *before);
    const auto after = Solve(held, world);
    const std::int64_t global = trial.request.global_batch_size.value_or(before->global_batch_size);
    if (global % world == 0 && global / world <= std::int64_t{1} << 32U &&
        global == before->global_batch_size && HoldsAt(held, world)) {
      ASSERT_TRUE(after.ok()) << after.status() << "\n" << Describe(held);
      ASSERT_EQ(after->global_batch_size, global) << Describe(held);
      ASSERT_EQ(after->learning_rate, before->learning_rate);
      ASSERT_EQ(after->adam, before->adam);
      ASSERT_EQ(after->warmup_steps, before->warmup_steps);
      ASSERT_EQ(after->total_steps, before->total_steps);
    }
    if (after.ok()) {
      ASSERT_EQ(after->warmup_samples, before->warmup_samples) << Describe(held);
      ASSERT_EQ(after->total_samples, before->total_samples);
      ASSERT_EQ(after->lr_decay_samples, before->lr_decay_samples);
      ++changed;
    }
  }
  EXPECT_GT(changed, kRequests / 80);
}

TEST(LowerProperty, UntilItIsRefused_OnlyTheSplitMoves) {
  Random random(6);
  for (int i = 0; i < kRequests / 10; ++i) {
    const Trial trial = AnyBatch(random);
    auto plan = Solve(trial.request, trial.world);
    if (!plan.ok()) {
      continue;
    }
    Request request = trial.request;
    request.uneven_micro_steps = random.OneIn(2);
    // A micro-batch is below 2^33, and halves at least.
    for (int halved = 0;; ++halved) {
      ASSERT_LT(halved, 34);
      const auto lowered = Lower(request, *plan);
      if (!lowered.ok()) {
        ASSERT_EQ(lowered.status().code(), absl::StatusCode::kFailedPrecondition);
        break;
      }
      const Plan& smaller = lowered->plan;
      ASSERT_LT(smaller.micro_batch_size, plan->micro_batch_size);
      ASSERT_LE(smaller.micro_batch_size, *lowered->request.learned_max_micro_batch_size);
      ASSERT_GE(smaller.micro_batch_size, trial.request.min_micro_batch_size.value_or(1));
      ASSERT_EQ(smaller.even(),
                smaller.micro_batch_size * smaller.grad_accum_steps * smaller.world_size ==
                    smaller.global_batch_size);
      ASSERT_GE(smaller.micro_batch_size * smaller.grad_accum_steps, RankBatchSize(smaller, 0));
      if (*request.uneven_micro_steps) {
        ASSERT_GE(2 * smaller.micro_batch_size, *lowered->request.learned_max_micro_batch_size);
      }
      Plan same = smaller;
      same.micro_batch_size = plan->micro_batch_size;
      same.grad_accum_steps = plan->grad_accum_steps;
      ASSERT_EQ(same, *plan);
      // A later round of the same world comes to the very same plan.
      const auto solved = Solve(lowered->request, trial.world);
      ASSERT_TRUE(solved.ok()) << solved.status() << "\n" << Describe(lowered->request);
      ASSERT_EQ(*solved, smaller) << Describe(lowered->request);
      request = lowered->request;
      plan = smaller;
    }
  }
}

TEST(SolveProperty, AnyRequestAtAll_IsSolvedOrRefusedWithWords) {
  Random random(7);
  for (int i = 0; i < kRequests; ++i) {
    const Request request = AnyRequest(random);
    const auto plan = Solve(request, AnyInteger(random));
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_FALSE(plan.status().message().empty());
      continue;
    }
    ASSERT_GE(plan->global_batch_size, 1);
    ASSERT_GE(plan->micro_batch_size, 1);
    ASSERT_GE(plan->warmup_samples, 0);
    ASSERT_GE(plan->total_steps, plan->total_samples > 0 ? 1 : 0);
    ASSERT_TRUE(std::isfinite(plan->learning_rate.value_or(0)));
  }
}

}  // namespace
}  // namespace ddl::plan
