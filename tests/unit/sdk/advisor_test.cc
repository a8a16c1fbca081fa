// Advisor: what it says of the facts of a whole world, each kind once.
#include "worker_sdk/src/advisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ddl::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kShare = 8;

// One rank's part in a step.
struct Part {
  StepFacts facts;
  StepOutcome outcome;
};

// All ranks' advisors, and sums in place of the collectives.
class World {
 public:
  explicit World(int size, const AdviceOptions& options = {},
                 const std::vector<std::string>& parameters = {"w", "b"},
                 const std::function<std::int64_t()>& peak_memory_bytes = nullptr) {
    for (int rank = 0; rank < size; ++rank) {
      advisors_.emplace_back(options, rank, size, parameters, peak_memory_bytes);
    }
  }

  void Step(const std::vector<Part>& parts) {
    Advisor::TotalsArray totals{};
    double weight = 0;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const Advisor::TotalsArray mine = advisors_[rank].Totals(parts[rank].facts);
      for (std::size_t i = 0; i < totals.size(); ++i) {
        totals[i] += mine[i];
      }
      weight += parts[rank].facts.weight;
    }
    std::vector<double> words;
    const bool due = advisors_[0].ExchangeDue(totals);
    for (const Advisor& advisor : advisors_) {
      EXPECT_EQ(advisor.ExchangeDue(totals), due);  // all or none
    }
    if (due) {
      ++exchanges_;
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        const std::vector<double> mine = advisors_[rank].Words(parts[rank].facts);
        words.resize(mine.size());
        std::transform(words.begin(), words.end(), mine.begin(), words.begin(), std::plus<>());
      }
    }
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      advisors_[rank].Finish(parts[rank].facts, totals, weight, words, parts[rank].outcome);
      const std::vector<AdviceLine> lines = advisors_[rank].TakeLines();
      if (rank == 0) {
        lines_.insert(lines_.end(), lines.begin(), lines.end());
      }
    }
  }

  Advisor& advisor(std::size_t rank) { return advisors_[rank]; }
  [[nodiscard]] int exchanges() const { return exchanges_; }

  // What rank 0 said since the last call.
  std::vector<Advice> Kinds() const {
    std::vector<Advice> kinds;
    for (const AdviceLine& line : lines_) {
      kinds.push_back(line.kind);
    }
    return kinds;
  }
  [[nodiscard]] std::string Text(Advice kind) const {
    for (const AdviceLine& line : lines_) {
      if (line.kind == kind) {
        return line.text;
      }
    }
    return "";
  }

 private:
  std::vector<Advisor> advisors_;
  std::vector<AdviceLine> lines_;
  int exchanges_ = 0;
};

// A rank's ordinary step.
Part Ordinary(double weight = kShare) {
  Part part;
  part.facts.weight = weight;
  part.facts.micro_steps = 1;
  part.facts.largest_micro_batch = part.facts.smallest_micro_batch =
      static_cast<std::int64_t>(weight);
  part.facts.used_parameters = {true, true};
  part.outcome.step_s = 0.010;
  part.outcome.communication_s = 0.001;
  return part;
}

std::vector<Part> Parts(int world, double weight = kShare) {
  return std::vector<Part>(static_cast<std::size_t>(world), Ordinary(weight));
}

// The ids begin, begin + 1, ...
std::vector<std::int64_t> Ids(std::int64_t begin, std::int64_t count = kShare) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

// `ids` must outlive the step.
Part Reading(std::int64_t epoch, std::int64_t step, const std::vector<std::int64_t>& ids) {
  Part part = Ordinary(static_cast<double>(ids.size()));
  part.facts.data.epoch = epoch;
  part.facts.data.step_in_epoch = step;
  part.facts.data.samples = ids;
  return part;
}

// ---- silence ----------------------------------------------------------------

TEST(Advisor, OrdinaryTraining_SaysNothing) {
  World world(2);
  const std::vector<std::int64_t> ids = Ids(0, 1000);
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    for (std::int64_t step = 0; step < 50; ++step) {
      const auto at = static_cast<std::size_t>(step * 16 + epoch);
      const auto first = std::span(ids).subspan(at, 8);
      const auto second = std::span(ids).subspan(at + 8, 8);
      world.Step({Reading(epoch, step, {first.begin(), first.end()}),
                  Reading(epoch, step, {second.begin(), second.end()})});
    }
  }
  EXPECT_THAT(world.Kinds(), IsEmpty());
  // Two steps of the first two epochs, and one for the time: nothing else costs a
  // collective.
  EXPECT_EQ(world.exchanges(), 2 * 2 + 1);
}

TEST(Advisor, WithoutSamples_ExchangesOnlyInTheFirstStepsAndForTheTime) {
  World world(3);
  for (int step = 0; step < 300; ++step) {
    world.Step(Parts(3));
  }
  EXPECT_EQ(world.exchanges(), Advisor::kParameterSteps + 1);
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

TEST(Advisor, SwitchedOff_TakesPartWithZerosAndSaysNothing) {
  AdviceOptions off;
  off.enabled = false;
  off.batch_norm = true;
  World world(2, off);
  const std::vector<std::int64_t> same = Ids(0);
  world.Step({Reading(0, 0, same), Reading(5, 0, same)});
  world.advisor(0).RanksAreOut({1});
  EXPECT_THAT(world.advisor(0).TakeLines(), IsEmpty());
  EXPECT_FALSE(world.advisor(0).WantsGradientNorm());
  EXPECT_EQ(world.exchanges(), 0);
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

TEST(Advisor, SwitchedOffOnOneRank_AllStillExchangeTogether) {
  AdviceOptions off;
  off.enabled = false;
  World world(2);
  world.advisor(1) = Advisor(off, 1, 2, {"w", "b"}, nullptr);
  World three(3);
  three.advisor(2) = Advisor(off, 2, 3, {"w", "b"}, nullptr);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t step = 0; step < 60; ++step) {
      const Part ordinary = Ordinary();
      world.Step({Reading(epoch, step, Ids(16 * step)), ordinary});
      three.Step({Reading(epoch, step, Ids(16 * step + epoch)),
                  Reading(epoch / 2, step, Ids(16 * step + 8 + epoch)), ordinary});
    }
  }
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kSameOrder));
  EXPECT_THAT(three.Kinds(), ElementsAre(Advice::kDifferentEpochs));
}

TEST(Advisor, SwitchedOffOnOneRank_ItsWordsAreNotMistaken) {
  AdviceOptions off;
  off.enabled = false;
  const Advisor on({}, 0, 2, {"w"}, nullptr);
  const Advisor other(off, 1, 2, {"w"}, nullptr);
  const Part part = Ordinary();
  EXPECT_EQ(on.Words(part.facts).size(), other.Words(part.facts).size());
  EXPECT_THAT(other.Words(part.facts), ::testing::Each(0.0));
}

// ---- the data ---------------------------------------------------------------

TEST(Advisor, TwoRanksOfTheSameSamples_AreBothNamedOnce) {
  World world(3);
  std::vector<std::int64_t> shuffled = Ids(100);
  std::swap(shuffled[0], shuffled[5]);
  for (std::int64_t step = 0; step < 3; ++step) {
    world.Step({Reading(0, step, Ids(0)), Reading(0, step, Ids(100)), Reading(0, step, shuffled)});
  }
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kSameSamples));
  EXPECT_THAT(world.Text(Advice::kSameSamples),
              HasSubstr("rank 1 and rank 2 read the same samples: all of the first 8"));
}

TEST(Advisor, OneSampleInCommon_IsChanceUntilTheNextStep) {
  World world(2);
  world.Step({Reading(0, 0, Ids(5, 1)), Reading(0, 0, Ids(5, 1))});
  EXPECT_THAT(world.Kinds(), IsEmpty());
  world.Step({Reading(0, 1, Ids(6, 1)), Reading(0, 1, Ids(6, 1))});
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kSameSamples));
}

TEST(Advisor, RanksInDifferentEpochs_AreNamedWithTheirEpochs) {
  World world(2);
  world.Step({Reading(0, 0, Ids(0)), Reading(0, 0, Ids(8))});
  world.Step({Reading(0, 1, Ids(16)), Reading(0, 1, Ids(24))});
  world.Step({Reading(1, 0, Ids(32)), Reading(0, 2, Ids(40))});
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kDifferentEpochs));
  EXPECT_THAT(world.Text(Advice::kDifferentEpochs),
              AllOf(HasSubstr("rank 1 is in epoch 0, rank 0 in epoch 1"), HasSubstr("StartEpoch"),
                    HasSubstr("set_epoch")));
}

TEST(Advisor, RankThatFallsBehindInALateEpoch_IsFoundWithoutAskingInEachEpoch) {
  World world(2);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    for (std::int64_t step = 0; step < 4; ++step) {
      const std::int64_t first = 1000 * epoch + 16 * step;
      const std::int64_t second = epoch > 8 ? 8 : epoch;  // it stays in its ninth
      world.Step({Reading(epoch, step, Ids(first)),
                  Reading(second, 4 * (epoch - second) + step, Ids(first + 8))});
    }
  }
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kDifferentEpochs));
  EXPECT_THAT(world.Text(Advice::kDifferentEpochs),
              HasSubstr("rank 1 is in epoch 8, rank 0 in epoch 9"));
  EXPECT_EQ(world.exchanges(), 2 * 2 + 1);
}

TEST(Advisor, OrderThatStopsChangingInALateEpoch_IsFound) {
  World world(2);
  for (std::int64_t epoch = 0; epoch < 9; ++epoch) {
    const std::int64_t shift = 100 * std::min<std::int64_t>(epoch, 7);
    world.Step({Reading(epoch, 0, Ids(shift)), Reading(epoch, 0, Ids(shift + 8))});
  }
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kSameOrder));
  EXPECT_THAT(world.Text(Advice::kSameOrder), HasSubstr("epoch 8 began"));
}

TEST(Advisor, EpochInTheOrderOfTheOneBefore_IsSaid) {
  for (const std::int64_t next_epoch : {0, 1}) {  // never advanced, or in name only
    World world(2);
    for (const std::int64_t epoch : {std::int64_t{0}, next_epoch}) {
      for (std::int64_t step = 0; step < 4; ++step) {
        world.Step(
            {Reading(epoch, step, Ids(16 * step)), Reading(epoch, step, Ids(16 * step + 8))});
      }
    }
    EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kSameOrder));
    EXPECT_THAT(world.Text(Advice::kSameOrder),
                HasSubstr("in the same order as the one before (the first 16)"));
  }
}

TEST(Advisor, SameSamplesInAnotherOrder_IsAnotherEpoch) {
  World world(1);
  std::vector<std::int64_t> shuffled = Ids(0);
  std::swap(shuffled[2], shuffled[3]);
  world.Step({Reading(0, 0, Ids(0))});  // one step is the whole epoch
  world.Step({Reading(1, 0, shuffled)});
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

TEST(Advisor, FixedOrderThatWasAskedFor_IsNoNews) {
  World world(1);
  const std::vector<std::int64_t> ids = Ids(0);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    Part part = Reading(epoch, 0, ids);
    part.facts.data.fixed_order = true;
    world.Step({part});
  }
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

TEST(Advisor, FewSamplesInTheSameOrder_MayBeChance) {
  World world(2);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    world.Step({Reading(epoch, 0, Ids(0, 3)), Reading(epoch, 0, Ids(3, 3))});
  }
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

TEST(Advisor, EpochResumedInTheMiddle_IsNotComparedWithAStart) {
  World world(1);
  world.Step({Reading(0, 7, Ids(0))});
  world.Step({Reading(1, 0, Ids(0))});
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

TEST(Advisor, StepThatIsTriedAgain_CountsOnce) {
  // A step that ran out of memory: totals and words, but no end; then again.
  World world(2);
  const std::vector<std::int64_t> ids = Ids(0);
  const Part part = Reading(0, 0, ids);
  const std::vector<double> words = world.advisor(0).Words(part.facts);
  EXPECT_EQ(world.advisor(0).Totals(part.facts), world.advisor(0).Totals(part.facts));
  EXPECT_EQ(world.advisor(0).Words(part.facts), words);
  world.Step({part, Reading(0, 0, Ids(8))});
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

// ---- BatchNorm --------------------------------------------------------------

TEST(Advisor, SmallMicroBatchWithBatchNorm_IsSaidOnlyWhereDeclared) {
  AdviceOptions declared;
  declared.batch_norm = true;
  World with(2, declared);
  World without(2);
  World enough(2, declared);
  for (int step = 0; step < 3; ++step) {
    with.Step(Parts(2, 2));
    without.Step(Parts(2, 2));
    enough.Step(Parts(2, 4));
  }
  EXPECT_THAT(with.Kinds(), ElementsAre(Advice::kSmallBatchNorm));
  EXPECT_THAT(with.Text(Advice::kSmallBatchNorm), HasSubstr("a micro-batch of 2 samples"));
  EXPECT_THAT(without.Kinds(), IsEmpty());
  EXPECT_THAT(enough.Kinds(), IsEmpty());
}

Part OfEpoch(std::int64_t samples, std::int64_t global, std::int64_t micro) {
  Part part = Ordinary(static_cast<double>(micro));
  part.facts.data.epoch_samples = samples;
  part.facts.data.global_batch = part.facts.data.global_samples = global;
  part.facts.data.tail_samples = samples % global;
  return part;
}

TEST(Advisor, OneSampleTailWithBatchNorm_IsForeseenWithTheEpochsArithmetic) {
  AdviceOptions declared;
  declared.batch_norm = true;
  World world(2, declared);
  world.Step(std::vector<Part>(2, OfEpoch(99, 32, 16)));  // 3 steps of 32, one of 3: 2 and 1
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kOneSampleBatchNorm));
  EXPECT_THAT(world.Text(Advice::kOneSampleBatchNorm),
              HasSubstr("an epoch of 99 samples is 3 steps of 32 and one of 3, of which rank 1 "
                        "gets 1 in micro-batches of up to 16"));
}

TEST(Advisor, TailOfMoreSamplesWithBatchNorm_SaysNothing) {
  AdviceOptions declared;
  declared.batch_norm = true;
  World world(2, declared);
  world.Step(std::vector<Part>(2, OfEpoch(100, 32, 16)));  // one of 4: 2 and 2
  EXPECT_THAT(world.Kinds(), IsEmpty());
  World split(2, declared);
  split.Step(std::vector<Part>(2, OfEpoch(42, 32, 4)));  // one of 10: 5 and 5, as 3 + 2
  EXPECT_THAT(split.Kinds(), IsEmpty());
}

TEST(Advisor, OneSampleMicroBatchOfAnOwnLoader_NamesTheRank) {
  AdviceOptions declared;
  declared.batch_norm = true;
  World world(2, declared);
  for (int step = 0; step < 5; ++step) {
    world.Step(Parts(2));
  }
  std::vector<Part> parts = {Ordinary(), Ordinary(1)};
  parts[0].facts.step = parts[1].facts.step = 206;  // of a run that was resumed
  world.Step(parts);
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kOneSampleBatchNorm));
  EXPECT_THAT(world.Text(Advice::kOneSampleBatchNorm), HasSubstr("on rank 1 in step 206"));
}

// ---- shares and parameters --------------------------------------------------

TEST(Advisor, RanksWithoutBatches_AreNamedOnce) {
  World world(4);
  world.advisor(0).RanksAreOut({1, 3});
  world.advisor(0).RanksAreOut({1, 2, 3});
  const auto lines = world.advisor(0).TakeLines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0].text, HasSubstr("ranks 1 and 3 of 4 have no more batches"));
}

TEST(Advisor, ParameterUnusedOnOneRank_IsNamedWithTheRank) {
  World world(3);
  std::vector<Part> parts = Parts(3);
  parts[2].facts.used_parameters = {true, false};
  parts[0].facts.step = 1;
  world.Step(parts);
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kUnusedParameter));
  EXPECT_THAT(world.Text(Advice::kUnusedParameter),
              HasSubstr("parameter \"b\" got no gradient on rank 2 (1 of 3) in step 1"));
}

TEST(Advisor, ParameterUnusedOnSeveralRanks_IsNamedWithTheirCount) {
  World world(3);
  std::vector<Part> parts = Parts(3);
  parts[1].facts.used_parameters = {true, false};
  parts[2].facts.used_parameters = {true, false};
  world.Step(parts);
  EXPECT_THAT(world.Text(Advice::kUnusedParameter), HasSubstr("\"b\" got no gradient on 2 of 3"));
}

TEST(Advisor, ManyUnusedParameters_AreABoundedList) {
  World world(2, {}, {"a", "b", "c", "d", "e"});
  std::vector<Part> parts = Parts(2);
  parts[0].facts.used_parameters.assign(5, true);
  parts[1].facts.used_parameters.assign(5, false);
  world.Step(parts);
  EXPECT_THAT(world.Text(Advice::kUnusedParameter),
              AllOf(HasSubstr("\"c\""), Not(HasSubstr("\"d\"")), HasSubstr("and 2 more")));
}

TEST(Advisor, ParameterUnusedEverywhereOrOnARankWithoutSamples_SaysNothing) {
  World world(2);
  std::vector<Part> parts = Parts(2);
  parts[0].facts.used_parameters = {true, false};
  parts[1].facts.used_parameters = {true, false};
  world.Step(parts);
  parts[0].facts.used_parameters = {true, true};
  parts[1] = Ordinary(0);
  parts[1].facts.used_parameters = {false, false};
  world.Step(parts);
  EXPECT_THAT(world.Kinds(), IsEmpty());
}

// ---- the noise scale --------------------------------------------------------

// Steps of two ranks of 16 samples whose gradients have a noise scale of `truth`.
World OfNoise(double truth, int steps) {
  World world(2);
  for (int step = 0; step < steps; ++step) {
    std::vector<Part> parts = Parts(2, 16);
    for (Part& part : parts) {
      // |G|^2 = 1; the sum over 16 samples has 256 times the mean's square.
      part.facts.gradient_sum_norm2 = 256 * (1 + truth / 16);
      part.outcome.mean_gradient_norm2 = 1 + truth / 32;
    }
    world.Step(parts);
  }
  return world;
}

TEST(Advisor, NoiseScaleFarAboveTheBatch_AdvisesALargerOne) {
  const World world = OfNoise(1000, Advisor::kNoiseReadings + 20);
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kNoiseScale));
  // (1 + 1000/64) / (1 + 1000/32) = 0.515
  EXPECT_THAT(world.Text(Advice::kNoiseScale),
              AllOf(HasSubstr("the gradient noise scale is about 1000 samples (50 readings), the "
                              "global batch is 32"),
                    HasSubstr("64 needs about 52 % of the steps")));
}

TEST(Advisor, NoiseScaleFarBelowTheBatch_SaysThatReturnsDiminish) {
  const World world = OfNoise(4, Advisor::kNoiseReadings);
  // (1 + 4/16) / (1 + 4/32) = 1.11
  EXPECT_THAT(world.Text(Advice::kNoiseScale),
              AllOf(HasSubstr("about 4 samples"), HasSubstr("Returns diminish"),
                    HasSubstr("16, needs about 111 % of the steps")));
}

TEST(Advisor, NoiseScaleNearTheBatch_IsInBalance) {
  const World world = OfNoise(30, Advisor::kNoiseReadings);
  EXPECT_THAT(world.Text(Advice::kNoiseScale), HasSubstr("in balance"));
}

TEST(Advisor, NoiseScale_WaitsForEnoughReadings) {
  EXPECT_THAT(OfNoise(30, Advisor::kNoiseReadings - 1).Kinds(), IsEmpty());
}

TEST(Advisor, UnequalSharesOrAWorldOfOne_GiveNoNoiseScale) {
  World unequal(2);
  for (int step = 0; step < 100; ++step) {
    std::vector<Part> parts = {Ordinary(8), Ordinary(7)};
    for (Part& part : parts) {
      part.facts.gradient_sum_norm2 = 100;
      part.outcome.mean_gradient_norm2 = 1;
    }
    unequal.Step(parts);
  }
  EXPECT_THAT(unequal.Kinds(), IsEmpty());
  EXPECT_FALSE(World(1).advisor(0).WantsGradientNorm());
}

TEST(Advisor, GradientNormThatNeverHelps_IsGivenUp) {
  World world(2);
  std::int64_t wanted = 0;
  for (int step = 0; step < 2000; ++step) {
    wanted += world.advisor(0).WantsGradientNorm() ? 1 : 0;
    world.Step({Ordinary(8), Ordinary(7)});
  }
  EXPECT_EQ(wanted, 4 * Advisor::kNoiseReadings);
}

TEST(Advisor, GradientNorm_IsWantedInEveryFourthStepUntilItWasSaid) {
  World world(2);
  std::vector<bool> wanted;
  for (int step = 0; step < 5; ++step) {
    wanted.push_back(world.advisor(0).WantsGradientNorm());
    world.Step(Parts(2));
  }
  EXPECT_THAT(wanted, ElementsAre(true, false, false, false, true));
}

// ---- time and memory --------------------------------------------------------

std::vector<Part> Waiting(const std::vector<double>& shares, double step_s) {
  std::vector<Part> parts = Parts(static_cast<int>(shares.size()));
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    parts[rank].outcome.step_s = step_s;
    parts[rank].outcome.communication_s = shares[rank] * parts[rank].outcome.step_s;
  }
  return parts;
}

World AfterWaiting(const std::vector<double>& shares, double step_s = 0.010) {
  World world(static_cast<int>(shares.size()));
  for (std::int64_t step = 0; step < 300; ++step) {
    // The first steps are slow, and do not count.
    world.Step(step < Advisor::kSettlingSteps
                   ? Waiting(std::vector<double>(shares.size(), 0.99), step_s)
                   : Waiting(shares, step_s));
  }
  return world;
}

TEST(Advisor, EfficiencyUnderThreeQuarters_IsSaidWithTheNumber) {
  const World world = AfterWaiting({0.40, 0.44});
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kWaiting));
  EXPECT_THAT(
      world.Text(Advice::kWaiting),
      AllOf(HasSubstr("scaling efficiency is 58 %: over 100 steps of 10.0 ms, 2 ranks spent "
                      "42 % in communication and waiting, and 5.8 ms a step in their own"),
            HasSubstr("All ranks wait alike")));
}

TEST(Advisor, OneSlowRank_IsNamedAsWhatTheOthersWaitFor) {
  const World world = AfterWaiting({0.50, 0.50, 0.02, 0.50});
  EXPECT_THAT(world.Text(Advice::kWaiting), HasSubstr("rank 2 waits least (2 %)"));
}

TEST(Advisor, EfficiencyOfThreeQuarters_IsEnough) {
  EXPECT_THAT(AfterWaiting({0.24, 0.25}).Kinds(), IsEmpty());
}

TEST(Advisor, OwnWorkOfLessThanAMillisecond_SaysNothingOfEfficiency) {
  // Steps of 10 ms with half of them, and a twentieth of them, a rank's own.
  EXPECT_THAT(AfterWaiting({0.5, 0.5}).Kinds(), ElementsAre(Advice::kWaiting));
  EXPECT_THAT(AfterWaiting({0.95, 0.95}).Kinds(), IsEmpty());
  const double step_s = kLeastOwnStepSeconds / 0.5;
  EXPECT_THAT(AfterWaiting({0.5, 0.5}, 1.01 * step_s).Kinds(), ElementsAre(Advice::kWaiting));
  EXPECT_THAT(AfterWaiting({0.5, 0.5}, 0.99 * step_s).Kinds(), IsEmpty());
}

// 120 steps of micro-batches of 8; the peak is of 1000 bytes, `change` is made to each
// rank's advisor before step 20.
World OfMemory(
    const std::function<std::int64_t()>& peak, std::int64_t micro_steps,
    const std::function<void(Advisor&)>& change = [](Advisor&) {}) {
  AdviceOptions options;
  options.device_memory_bytes = 1000;
  World world(2, options, {"w", "b"}, peak);
  for (int step = 0; step < 120; ++step) {
    std::vector<Part> parts = Parts(2, 8);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      parts[rank].facts.micro_steps = micro_steps;
      if (step == 20) {
        change(world.advisor(rank));
      }
    }
    world.Step(parts);
  }
  return world;
}

std::int64_t Peak300() {
  return 300;
}

TEST(Advisor, AccumulationWithMemoryToSpare_IsSaidWithTheNumbers) {
  const World world = OfMemory(Peak300, 4);
  EXPECT_THAT(world.Kinds(), ElementsAre(Advice::kAccumulation));
  EXPECT_THAT(world.Text(Advice::kAccumulation),
              AllOf(HasSubstr("takes 4 micro-steps of up to 8 samples"), HasSubstr("used to 30 %"),
                    HasSubstr("a micro-batch of 16 would fit (at most 60 %) and take 2"),
                    Not(HasSubstr("usually faster"))));
}

TEST(Advisor, AccumulationThatMemoryNeeds_OrNone_SaysNothing) {
  EXPECT_THAT(OfMemory([] { return 460; }, 4).Kinds(), IsEmpty());
  EXPECT_THAT(OfMemory(Peak300, 1).Kinds(), IsEmpty());
}

TEST(Advisor, AccumulationWithoutAPeak_SaysNothing) {
  EXPECT_THAT(OfMemory(nullptr, 4).Kinds(), IsEmpty());
  EXPECT_THAT(OfMemory([] { return 0; }, 4).Kinds(), IsEmpty());
  int calls = 0;  // one rank of two does not know
  EXPECT_THAT(OfMemory([&] { return ++calls == 1 ? 300 : 0; }, 4).Kinds(), IsEmpty());
}

TEST(Advisor, AccumulationAfterMemoryRanOut_SaysNothing) {
  EXPECT_THAT(OfMemory(Peak300, 4, [](Advisor& advisor) { advisor.MemoryRanOut(); }).Kinds(),
              IsEmpty());
}

TEST(Advisor, AccumulationAtTheCap_SaysNothing) {
  const auto limit = [](std::int64_t most) {
    return [most](Advisor& advisor) { advisor.LimitMicroBatch(most); };
  };
  EXPECT_THAT(OfMemory(Peak300, 4, limit(8)).Kinds(), IsEmpty());
  EXPECT_THAT(OfMemory(Peak300, 4, limit(15)).Kinds(), IsEmpty());
  EXPECT_THAT(OfMemory(Peak300, 4, limit(16)).Kinds(), ElementsAre(Advice::kAccumulation));
}

TEST(Advisor, MicroStepsAndMicroBatch_AreOfOneStep) {
  AdviceOptions options;
  options.device_memory_bytes = 1000;
  World world(1, options, {"w"}, Peak300);
  for (int step = 0; step < 120; ++step) {
    // One of 12 samples in every other step, three of 4 in the others.
    std::vector<Part> parts = Parts(1, step % 2 == 0 ? 12 : 4);
    parts[0].facts.micro_steps = step % 2 == 0 ? 1 : 3;
    world.Step(parts);
  }
  EXPECT_THAT(world.Text(Advice::kAccumulation),
              AllOf(HasSubstr("3 micro-steps of up to 4 samples"),
                    HasSubstr("a micro-batch of 8 would fit (at most 60 %) and take 2")));
}

}  // namespace
}  // namespace ddl::internal
