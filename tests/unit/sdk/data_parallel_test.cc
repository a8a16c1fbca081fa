// DataParallel: the sum-normalised gradient over threads as ranks.
#include "ddl/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/sdk/world.h"
#include "worker_sdk/src/advisor.h"

namespace ddl {
namespace {

using ::ddl::testing::Meeting;
using ::ddl::testing::OnEveryRank;
using ::ddl::testing::ThreadBackend;
using ::testing::Each;
using ::testing::HasSubstr;

// Two parameters with their gradients.
struct Model {
  explicit Model(float value) : first(3, value), second(5, value), first_g(3), second_g(5) {}
  std::vector<float> first;
  std::vector<float> second;
  std::vector<float> first_g;
  std::vector<float> second_g;
  std::vector<Parameter> Parameters() {
    return {{"first", first, first_g}, {"second", second, second_g}};
  }
  void Add(float gradient) {
    for (float& g : first_g) {
      g += gradient;
    }
    for (float& g : second_g) {
      g += 2 * gradient;
    }
  }
};

// (loss sum = gradient sum, weight) of each micro-batch, by rank.
using Batches = std::vector<std::vector<std::pair<float, double>>>;

struct Outcome {
  StepResult result;
  std::vector<float> first;
  std::vector<float> second;
};

// One step on every rank; all must come out alike, and rank 0's is returned.
Outcome Step(const Batches& batches, const DataParallelOptions& options = {}) {
  Meeting meeting(static_cast<int>(batches.size()));
  std::vector<Outcome> outcomes(batches.size());
  OnEveryRank(static_cast<int>(batches.size()), [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    Model model(0);
    auto parallel = DataParallel::Create(&backend, model.Parameters(), options);
    ASSERT_TRUE(parallel.ok()) << parallel.status();
    for (const auto& [sum, weight] : batches[static_cast<std::size_t>(rank)]) {
      model.Add(sum);
      ASSERT_TRUE(parallel->AddMicroBatch(static_cast<double>(sum), weight).ok());
    }
    const auto result = parallel->FinishStep();
    ASSERT_TRUE(result.ok()) << result.status();
    outcomes[static_cast<std::size_t>(rank)] = {*result, model.first_g, model.second_g};
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result.mean_loss, outcomes[0].result.mean_loss);
    EXPECT_EQ(outcome.result.weight, outcomes[0].result.weight);
    EXPECT_EQ(outcome.first, outcomes[0].first);
    EXPECT_EQ(outcome.second, outcomes[0].second);
  }
  return outcomes[0];
}

TEST(DataParallel, UnequalWeights_GiveTheMeanOverAllNotTheMeanOfMeans) {
  // 23 / 10 = 2.3; the average of the four averages would be 2.5.
  const Outcome outcome = Step({{{8, 4}, {2, 1}}, {{3, 3}, {10, 2}}});
  EXPECT_DOUBLE_EQ(outcome.result.mean_loss, 2.3);
  EXPECT_DOUBLE_EQ(outcome.result.weight, 10);
  EXPECT_THAT(outcome.first, Each(2.3F));
  EXPECT_THAT(outcome.second, Each(4.6F));
}

TEST(DataParallel, LossOfAMicroBatchWithoutWeight_HasNoSay) {
  Meeting meeting(1);
  ThreadBackend backend(&meeting, 0);
  Model model(0);
  auto parallel = DataParallel::Create(&backend, model.Parameters());
  ASSERT_TRUE(parallel.ok());
  model.Add(6);
  ASSERT_TRUE(parallel->AddMicroBatch(6, 3).ok());
  ASSERT_TRUE(parallel->AddMicroBatch(std::numeric_limits<double>::quiet_NaN(), 0).ok());
  const auto result = parallel->FinishStep();
  ASSERT_TRUE(result.ok());
  EXPECT_DOUBLE_EQ(result->mean_loss, 2);
  EXPECT_THAT(model.first_g, Each(2.0F));
}

TEST(DataParallel, NoWeightAtAll_IsAZeroGradientAndLoss) {
  const Outcome outcome = Step({{{5, 0}}, {}});
  EXPECT_EQ(outcome.result.mean_loss, 0);
  EXPECT_EQ(outcome.result.weight, 0);
  EXPECT_THAT(outcome.first, Each(0.0F));
  EXPECT_THAT(outcome.second, Each(0.0F));
}

TEST(DataParallel, EmptyShares_ContributeZeros) {
  const Outcome outcome = Step({{{4, 1}}, {{8, 2}}, {}, {}});
  EXPECT_DOUBLE_EQ(outcome.result.mean_loss, 4);
  EXPECT_THAT(outcome.first, Each(4.0F));
}

TEST(DataParallel, SameSamplesOtherwiseShared_GiveTheSameStep) {
  const Outcome one = Step({{{1, 1}, {2, 1}, {4, 1}, {8, 1}}});
  for (const Batches& batches :
       {Batches{{{15, 4}}}, Batches{{{3, 2}}, {{12, 2}}},
        Batches{{{1, 1}, {2, 1}}, {{4, 1}, {8, 1}}},
        Batches{{{1, 1}}, {{2, 1}}, {{4, 1}}, {{8, 1}}}, Batches{{{15, 4}}, {}}}) {
    const Outcome outcome = Step(batches);
    EXPECT_EQ(outcome.result.mean_loss, one.result.mean_loss);
    EXPECT_EQ(outcome.first, one.first);
    EXPECT_EQ(outcome.second, one.second);
  }
}

TEST(DataParallel, AnyBucketSize_GivesTheSameStep) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{12}, std::size_t{31}, std::size_t{32}, std::size_t{1000}}) {
    DataParallelOptions options;
    options.bucket_bytes = bytes;
    EXPECT_THAT(Step({{{8, 4}, {2, 1}}, {{3, 3}, {10, 2}}}, options).second, Each(4.6F));
  }
}

TEST(DataParallel, Buckets_AreFilledFromTheLastParameter) {
  Meeting meeting(1);
  ThreadBackend backend(&meeting, 0);
  Model model(0);
  const auto buckets = [&](std::size_t bytes) {
    DataParallelOptions options;
    options.bucket_bytes = bytes;
    return DataParallel::Create(&backend, model.Parameters(), options)->num_buckets();
  };
  EXPECT_EQ(buckets(8 * sizeof(float)), 1U);
  EXPECT_EQ(buckets(7 * sizeof(float)), 2U);
}

TEST(DataParallel, Accumulation_CommunicatesOnceAStep) {
  Meeting meeting(2);
  OnEveryRank(2, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    Model model(0);
    auto parallel = DataParallel::Create(&backend, model.Parameters());
    // In the first steps advice has a word more.
    for (std::int64_t step = 0; step < internal::Advisor::kParameterSteps; ++step) {
      ASSERT_TRUE(parallel->FinishStep().ok());
    }
    ASSERT_TRUE(backend.Barrier().ok());
    const int before = meeting.reductions;
    ASSERT_TRUE(backend.Barrier().ok());
    for (int micro = 0; micro < 8; ++micro) {
      ASSERT_TRUE(parallel->AddMicroBatch(1, 1).ok());
    }
    ASSERT_TRUE(parallel->FinishStep().ok());
    ASSERT_TRUE(backend.Barrier().ok());
    // Loss, weight and what advice wants to know, and one bucket.
    EXPECT_EQ(meeting.reductions - before, 2);
  });
}

TEST(DataParallel, NextStep_BeginsFromNothing) {
  Meeting meeting(1);
  ThreadBackend backend(&meeting, 0);
  Model model(0);
  auto parallel = DataParallel::Create(&backend, model.Parameters());
  ASSERT_TRUE(parallel->AddMicroBatch(100, 50).ok());
  ASSERT_TRUE(parallel->FinishStep().ok());
  parallel->ZeroGradients();
  EXPECT_THAT(model.first_g, Each(0.0F));
  ASSERT_TRUE(parallel->AddMicroBatch(6, 2).ok());
  EXPECT_DOUBLE_EQ(parallel->FinishStep()->mean_loss, 3);
}

TEST(DataParallel, Create_GivesEveryRankTheWeightsOfRankZero) {
  Meeting meeting(3);
  OnEveryRank(3, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    Model model(static_cast<float>(rank + 1));
    ASSERT_TRUE(DataParallel::Create(&backend, model.Parameters()).ok());
    EXPECT_THAT(model.first, Each(1.0F));
    EXPECT_THAT(model.second, Each(1.0F));
  });
}

TEST(DataParallel, OtherModelOnOneRank_IsToldToAll) {
  Meeting meeting(3);
  OnEveryRank(3, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    Model model(0);
    std::vector<Parameter> parameters = model.Parameters();
    if (rank == 2) {
      parameters[1].name = "third";
    }
    const auto parallel = DataParallel::Create(&backend, parameters);
    EXPECT_EQ(parallel.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(parallel.status().message()), HasSubstr("1 of 3 ranks have other"));
  });
}

TEST(DataParallel, GradientOfAnotherLength_IsRefused) {
  Meeting meeting(1);
  ThreadBackend backend(&meeting, 0);
  std::vector<float> value(3);
  std::vector<float> gradient(2);
  const auto parallel = DataParallel::Create(&backend, {{"w", value, gradient}});
  EXPECT_EQ(parallel.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DataParallel, ImpossibleWeight_IsRefused) {
  Meeting meeting(1);
  ThreadBackend backend(&meeting, 0);
  Model model(0);
  auto parallel = DataParallel::Create(&backend, model.Parameters());
  EXPECT_FALSE(parallel->AddMicroBatch(1, -1).ok());
  EXPECT_FALSE(parallel->AddMicroBatch(1, std::numeric_limits<double>::infinity()).ok());
  EXPECT_FALSE(parallel->AddMicroBatch(1, std::numeric_limits<double>::quiet_NaN()).ok());
}

// ---- advice -----------------------------------------------------------------

struct Training {
  std::vector<float> weights;
  std::string said;  // by rank 0
};

// Steps of a small model on every rank; gradients that are no round numbers.
Training Train(int world, int steps, const DataParallelOptions& options,
               bool second_parameter_unused_on_rank_one = false) {
  Meeting meeting(world);
  Training training;
  ::testing::internal::CaptureStderr();
  OnEveryRank(world, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    Model model(1);
    auto parallel = DataParallel::Create(&backend, model.Parameters(), options);
    for (int step = 0; step < steps; ++step) {
      parallel->ZeroGradients();
      model.Add(std::sin(static_cast<float>(1 + step * world + rank)));
      if (second_parameter_unused_on_rank_one && rank == 1) {
        std::fill(model.second_g.begin(), model.second_g.end(), 0.0F);
      }
      ASSERT_TRUE(parallel->AddMicroBatch(0.3, 7).ok());
      ASSERT_TRUE(parallel->FinishStep().ok());
      for (std::size_t i = 0; i < model.first.size(); ++i) {
        model.first[i] -= 0.01F * model.first_g[i];
      }
    }
    if (rank == 0) {
      training.weights = model.first;
    }
  });
  training.said = ::testing::internal::GetCapturedStderr();
  return training;
}

TEST(DataParallelAdvice, OnOrOff_IsTheSameTrainingBitForBit) {
  DataParallelOptions off;
  off.advice.enabled = false;
  const Training with = Train(2, 300, {});
  const Training without = Train(2, 300, off);
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_THAT(with.said, HasSubstr("ddl: advice: the gradient noise scale is"));
  EXPECT_EQ(without.said, "");
}

TEST(DataParallelAdvice, ParameterUnusedOnOneRank_IsNamedAndNothingHangs) {
  const Training training = Train(2, 3, {}, true);
  EXPECT_THAT(training.said, HasSubstr("parameter \"second\" got no gradient on rank 1 (1 of 2)"));
  EXPECT_EQ(std::count(training.said.begin(), training.said.end(), '\n'), 1);
}

TEST(DataParallelAdvice, UnequalBatches_AreJoinedAndTheShortRankNamedOnce) {
  // Rank r has r + 1 batches of one sample with a gradient of 6.
  constexpr int kWorld = 3;
  Meeting meeting(kWorld);
  std::vector<int> steps(kWorld);
  ::testing::internal::CaptureStderr();
  OnEveryRank(kWorld, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    Model model(0);
    auto parallel = DataParallel::Create(&backend, model.Parameters());
    for (int left = rank + 1;; --left) {
      const auto more = parallel->AnyHasMore(left > 0);
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more) {
        break;
      }
      parallel->ZeroGradients();
      if (left > 0) {
        model.Add(6);
        ASSERT_TRUE(parallel->AddMicroBatch(6, 1).ok());
      }
      const auto result = parallel->FinishStep();
      ASSERT_TRUE(result.ok()) << result.status();
      const int step = steps[static_cast<std::size_t>(rank)]++;
      EXPECT_EQ(result->weight, kWorld - step);
      EXPECT_EQ(result->mean_loss, 6);
      EXPECT_THAT(model.first_g, Each(6.0F));
    }
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(steps, Each(kWorld));
  EXPECT_THAT(said, HasSubstr("ddl: advice: rank 0 of 3 has no more batches while others have"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

}  // namespace
}  // namespace ddl
