// The search against machines that are known: where it ends, and what it never does.
#include "launcher/tune/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace ddl::tune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Pair;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

struct Machine {
  double fixed = 1;                     // seconds of a step, beside one for each sample
  std::int64_t memory = kNever;         // the largest that fits
  std::int64_t out_of_memory = kNever;  // from here on a trial dies
  std::int64_t data = kNever;           // samples there are

  [[nodiscard]] double Throughput(std::int64_t micro) const {
    return static_cast<double>(micro) / (fixed + static_cast<double>(micro));
  }
  [[nodiscard]] Outcome Try(std::int64_t micro) const {
    if (micro >= out_of_memory) {
      return Outcome::kOutOfMemory;
    }
    if (micro > data) {
      return Outcome::kDataEnds;
    }
    return micro > memory ? Outcome::kTooMuchMemory : Outcome::kFits;
  }
};

// Lets `search` try `machine` out; what was tried, in order.
template <typename Noise>
std::vector<std::int64_t> Explore(Search& search, const Machine& machine, Noise noise) {
  std::vector<std::int64_t> tried;
  while (const auto micro = search.Next()) {
    EXPECT_EQ(std::count(tried.begin(), tried.end(), *micro), 0) << "twice: " << *micro;
    tried.push_back(*micro);
    search.Record(*micro, machine.Try(*micro), machine.Throughput(*micro) * noise());
    if (tried.size() > 100) {
      ADD_FAILURE() << "it does not end";
      break;
    }
  }
  return tried;
}

std::vector<std::int64_t> Explore(Search& search, const Machine& machine) {
  return Explore(search, machine, [] { return 1.0; });
}

// {0, kKnee}: nothing fits.
std::pair<std::int64_t, Reason> ChoiceOf(const Search& search) {
  const Choice choice = search.Chosen().value_or(Choice{});
  return {choice.micro_batch_size, choice.reason};
}

TEST(Search, OutOfMemoryOnTheRise_FindsTheLargestThatFits) {
  Search search({});
  EXPECT_THAT(Explore(search, {.fixed = 1000, .out_of_memory = 57}),
              ElementsAre(1, 2, 4, 8, 16, 32, 64, 48, 56));
  EXPECT_THAT(ChoiceOf(search), Pair(56, Reason::kMemory));
}

TEST(Search, FlatCurve_StopsAndRefinesBelowTheKnee) {
  Search search({});
  const std::vector<std::int64_t> tried = Explore(search, {.fixed = 7});
  EXPECT_LE(tried.size(), 14);
  EXPECT_THAT(ChoiceOf(search), Pair(AllOf(Ge(48), Le(64)), Reason::kKnee));
}

TEST(Search, DataEnds_IsNoMatterOfMemory) {
  Search search({});
  EXPECT_THAT(Explore(search, {.fixed = 1000, .data = 20}), ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_THAT(ChoiceOf(search), Pair(16, Reason::kData));
}

TEST(Search, Bound_IsTriedAndNotExceeded) {
  Search search({.most = 48});
  EXPECT_THAT(Explore(search, {.fixed = 1000}), ElementsAre(1, 2, 4, 8, 16, 32, 48));
  EXPECT_THAT(ChoiceOf(search), Pair(48, Reason::kBound));
}

TEST(Search, BoundBelowThePlateau_IsChosenAndNotTakenForTheKnee) {
  Search few({.most = 4});
  EXPECT_THAT(Explore(few, {.fixed = 1000}), ElementsAre(1, 2, 4));
  EXPECT_THAT(ChoiceOf(few), Pair(4, Reason::kBound));
  // As measured once: 48 had nine tenths of what 64 had, which had not flattened.
  Search more({.first = 8, .most = 64});
  Explore(more, {.fixed = 64});
  EXPECT_THAT(ChoiceOf(more), Pair(64, Reason::kBound));
  Search one({.most = 1});
  EXPECT_THAT(Explore(one, {}), ElementsAre(1));
  EXPECT_THAT(ChoiceOf(one), Pair(1, Reason::kBound));
}

TEST(Search, BoundAboveTheKnee_HasAKnee) {
  Search search({.most = 256});
  Explore(search, {.fixed = 7});
  EXPECT_THAT(ChoiceOf(search), Pair(AllOf(Ge(48), Le(64)), Reason::kKnee));
}

TEST(Search, TrialFails_SaysThatItEndedThere) {
  Search search({});
  search.Record(1, Outcome::kFits, 1);
  search.Record(2, Outcome::kFits, 2);
  EXPECT_THAT(ChoiceOf(search), Pair(2, Reason::kUnfinished));
  search.Record(4, Outcome::kFailed, 0);
  EXPECT_EQ(search.Next(), std::nullopt);
  EXPECT_THAT(ChoiceOf(search), Pair(2, Reason::kFailure));
}

TEST(Search, FirstIsTooLarge_GoesDownToOneThatFits) {
  Search search({.first = 64});
  EXPECT_THAT(Explore(search, {.fixed = 1000, .out_of_memory = 20}),
              ElementsAre(64, 32, 16, 24, 20));
  EXPECT_THAT(ChoiceOf(search), Pair(16, Reason::kMemory));
}

TEST(Search, OneDisturbedTrial_IsRepeatedAndTheBetterCounts) {
  const Machine machine{.fixed = 1000, .out_of_memory = 60};
  Search search({});
  std::vector<std::int64_t> tried;
  while (const auto micro = search.Next()) {
    const bool is_disturbed = *micro == 16 && std::count(tried.begin(), tried.end(), 16) == 0;
    tried.push_back(*micro);
    search.Record(*micro, machine.Try(*micro), machine.Throughput(*micro) / (is_disturbed ? 9 : 1));
  }
  EXPECT_THAT(tried, ElementsAre(1, 2, 4, 8, 16, 32, 64, 16, 48, 56));
  EXPECT_EQ(search.Curve()[4].samples_per_s, machine.Throughput(16));
}

TEST(Search, NothingFits_HasNoChoice) {
  Search search({});
  EXPECT_THAT(Explore(search, {.out_of_memory = 1}), ElementsAre(1));
  EXPECT_FALSE(search.Chosen().has_value());
}

TEST(Search, AnyMachine_EndsWithinOneDoublingOfTheKneeAndNeverAboveMemory) {
  std::mt19937 random(2);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
  std::uniform_real_distribution<double> log_fixed(-1, 8);
  std::uniform_real_distribution<double> log_bound(0, 12);
  std::normal_distribution<double> noise(0, 0.01);
  for (int i = 0; i < 20'000; ++i) {
    Machine machine;
    machine.fixed = std::exp(log_fixed(random));
    machine.memory = static_cast<std::int64_t>(std::exp(log_bound(random)));
    machine.out_of_memory = machine.memory + 1 + static_cast<std::int64_t>(random() % 5);
    Search search({});
    const auto tried = Explore(search, machine, [&] { return 1 + noise(random); });
    ASSERT_TRUE(search.Chosen().has_value());
    const std::int64_t choice = search.Chosen()->micro_batch_size;
    ASSERT_LE(choice, machine.memory);
    ASSERT_LE(tried.size(), 24);
    // Where nine tenths are reached of what the memory allows.
    const double best = machine.Throughput(std::min<std::int64_t>(machine.memory, 1 << 20));
    const double enough = kKneePart * best;
    const double truth = machine.fixed * enough / (1 - enough);
    const double on_grid = std::exp2(std::ceil(std::log2(std::max(1.0, truth))));
    ASSERT_GE(static_cast<double>(choice), 0.9 * truth / 2)
        << "fixed " << machine.fixed << " memory " << machine.memory;
    ASSERT_LE(static_cast<double>(choice), 2 * on_grid)
        << "fixed " << machine.fixed << " memory " << machine.memory;
  }
}

}  // namespace
}  // namespace ddl::tune
