// RunStep: out of memory within a step, over real Gloo, threads as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddl/data_parallel.h"
#include "ddl/out_of_memory.h"
#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::MakeContext;
using ::ddl::testing::OnEveryRank;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kGlobal = 32;

// One micro-step, as a script sees it.
struct Moment {
  int rank = 0;
  std::int64_t step = 0;
  int attempt = 0;  // of this step, on this rank
  int micro = 0;    // of this attempt
  std::size_t size = 0;
};
// What the micro-step ends with, besides its result.
using Script = std::function<absl::Status(const Moment&)>;

absl::Status Scripted() {
  return OutOfMemory({}, "scripted");
}

// A rank with its model of one parameter: sample i has the gradient and the loss i.
class Rank {
 public:
  Rank(const Context& context, const Plan& plan, DataParallelOptions options)
      : rank_(context.rank()), world_(context.world_size()) {
    auto backend = CreateBackend(context);
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    options.before_retry = [this] {
      EXPECT_THAT(gradient_, Each(0.0F));
      ++retries_;
      ++attempt_;
      micro_ = 0;
    };
    auto parallel =
        DataParallel::Create(context, plan, backend_.get(), {{"w", value_, gradient_}}, options);
    EXPECT_TRUE(parallel.ok()) << parallel.status();
    parallel_.emplace(*std::move(parallel));
  }

  // Step k has the samples k x global .. (k + 1) x global - 1, or fewer.
  absl::StatusOr<StepResult> Step(std::int64_t step, const Script& script,
                                  std::int64_t samples = kGlobal) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(samples));
    std::iota(ids.begin(), ids.end(), step * kGlobal);
    const IndexRange mine = ShareOf(samples, rank_, world_);
    StepShare share;
    share.global_samples = samples;
    share.samples = std::span(ids).subspan(static_cast<std::size_t>(mine.begin),
                                           static_cast<std::size_t>(mine.size()));
    attempt_ = 0;
    micro_ = 0;
    return parallel_->RunStep(
        share, [&](std::span<const std::int64_t> micro) -> absl::StatusOr<MicroResult> {
          MicroResult result;
          for (const std::int64_t id : micro) {
            gradient_[0] += static_cast<float>(id);
            result.loss_sum += static_cast<double>(id);
          }
          result.weight = static_cast<double>(micro.size());
          const absl::Status status = script({rank_, step, attempt_, micro_++, micro.size()});
          return status.ok() ? absl::StatusOr<MicroResult>(result) : status;
        });
  }

  // Step k came out as if nothing had happened.
  void ExpectStep(std::int64_t step, const Script& script, std::int64_t samples = kGlobal) {
    const auto result = Step(step, script, samples);
    ASSERT_TRUE(result.ok()) << "rank " << rank_ << ": " << result.status();
    const double mean = static_cast<double>(step * kGlobal) + static_cast<double>(samples - 1) / 2;
    EXPECT_DOUBLE_EQ(result->mean_loss, mean);
    EXPECT_DOUBLE_EQ(result->weight, static_cast<double>(samples));
    EXPECT_FLOAT_EQ(gradient_[0], static_cast<float>(mean));
  }

  DataParallel& parallel() { return *parallel_; }
  Backend& backend() { return *backend_; }
  // Lets go of the peers, as an exit does.
  void Exit() {
    parallel_.reset();
    backend_.reset();
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int retries() const { return retries_; }
  [[nodiscard]] std::int64_t micro() const { return parallel_->micro_batch_size(); }

 private:
  int rank_;
  int world_;
  std::unique_ptr<Backend> backend_;
  std::vector<float> value_ = {0};
  std::vector<float> gradient_ = {0};
  std::optional<DataParallel> parallel_;
  int retries_ = 0;
  int attempt_ = 0;
  int micro_ = 0;
};

PlanDefaults Asked(std::int64_t max_micro = 0) {
  PlanDefaults asked;
  asked.global_batch_size = kGlobal;
  if (max_micro > 0) {
    asked.max_micro_batch_size = max_micro;
  }
  return asked;
}

// Runs body on every rank of a world that has agreed on `asked`.
void InWorld(int world, const PlanDefaults& asked, const std::function<void(Rank&)>& body) {
  auto gateway = std::make_shared<internal::MemoryGateway>(world);
  testing::Meeting end(world);
  OnEveryRank(world, [&](int rank) {
    const Context context = MakeContext(gateway, rank, world);
    const auto plan = context.AgreePlan(asked);
    ASSERT_TRUE(plan.ok()) << plan.status();
    DataParallelOptions options;
    options.agreement_timeout = std::chrono::minutes(2);
    Rank one(context, *plan, options);
    body(one);
    end.Meet([] {}, [] {});  // nobody disconnects while another still waits for its bytes
  });
}

TEST(RunStep, EnoughMemory_IsOneAttempt) {
  InWorld(4, Asked(4), [](Rank& rank) {
    for (std::int64_t step = 0; step < 3; ++step) {
      rank.ExpectStep(step, [](const Moment& at) {
        EXPECT_EQ(at.attempt, 0);
        EXPECT_EQ(at.size, 4U);
        return absl::OkStatus();
      });
    }
    EXPECT_EQ(rank.retries(), 0);
  });
}

TEST(RunStep, OneOfFourInItsSecondMicroBatch_AllDoTheStepAgain) {
  InWorld(4, Asked(4), [](Rank& rank) {
    const Script script = [](const Moment& at) {
      const bool fails = at.rank == 2 && at.step == 1 && at.attempt == 0 && at.micro == 1;
      return fails ? Scripted() : absl::OkStatus();
    };
    for (std::int64_t step = 0; step < 4; ++step) {
      rank.ExpectStep(step, script);
      EXPECT_EQ(rank.micro(), step < 1 ? 4 : 2);
    }
    // A rank that heard of it before it had begun has nothing to put back.
    EXPECT_LE(rank.retries(), 1);
    EXPECT_TRUE(rank.rank() != 2 || rank.retries() == 1);
    EXPECT_TRUE(rank.backend().Close().ok());
  });
}

TEST(RunStep, TwoRanksAtOnce_HalveOnce) {
  InWorld(4, Asked(4), [](Rank& rank) {
    const Script script = [](const Moment& at) {
      return at.size > 2 && at.rank % 2 == 1 ? Scripted() : absl::OkStatus();
    };
    for (std::int64_t step = 0; step < 3; ++step) {
      rank.ExpectStep(step, script);
      EXPECT_EQ(rank.micro(), 2);
    }
  });
}

TEST(RunStep, AllRanksAtOnce_HalveOnce) {
  InWorld(4, Asked(4), [](Rank& rank) {
    for (std::int64_t step = 0; step < 3; ++step) {
      rank.ExpectStep(step,
                      [](const Moment& at) { return at.size > 2 ? Scripted() : absl::OkStatus(); });
      EXPECT_EQ(rank.micro(), 2);
    }
  });
}

TEST(RunStep, AgainInTheSameStep_HalvesAgain) {
  InWorld(4, Asked(8), [](Rank& rank) {
    // First one rank, then another, then all.
    const Script script = [](const Moment& at) {
      const bool fails =
          (at.size > 4 && at.rank == 0) || (at.size > 2 && at.rank == 3) || at.size > 1;
      return fails ? Scripted() : absl::OkStatus();
    };
    for (std::int64_t step = 0; step < 2; ++step) {
      rank.ExpectStep(step, script);
      EXPECT_EQ(rank.micro(), 1);
    }
  });
}

// ---- uneven micro-steps -------------------------------------------------------

// Step 0 on every rank, whose largest share is `share`: what fits is half of it at
// first. Loss and gradient are as if nothing had happened.
void ExpectUnevenSplits(int world, std::int64_t global, BatchPolicy policy) {
  PlanDefaults asked;
  asked.global_batch_size = global;
  asked.batch_policy = policy;
  const std::int64_t share = (global + world - 1) / world;
  InWorld(world, asked, [&](Rank& rank) {
    ASSERT_EQ(rank.micro(), share);
    std::vector<std::size_t> sizes;  // of the attempt that counts
    const Script script = [&](const Moment& at) {
      if (at.micro == 0) {
        sizes.clear();
      }
      sizes.push_back(at.size);
      return at.size > static_cast<std::size_t>(share + 1) / 2 ? Scripted() : absl::OkStatus();
    };
    rank.ExpectStep(0, script, global);
    EXPECT_LE(rank.micro(), (share + 1) / 2);
    EXPECT_GE(rank.micro(), share / 3);
    const std::int64_t mine = ShareOf(global, rank.rank(), world).size();
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}),
              static_cast<std::size_t>(mine));
    EXPECT_THAT(sizes, SizeIs(static_cast<std::size_t>((mine + rank.micro() - 1) / rank.micro())));
    EXPECT_LE(sizes.front() - sizes.back(), 1U) << "alike to one sample";
    EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
    rank.ExpectStep(1, script, global);
  });
}

TEST(RunStep, ShareThatCannotBeHalved_IsSplitUnevenlyUnderEveryPolicy) {
  for (const BatchPolicy policy :
       {BatchPolicy::kFail, BatchPolicy::kNearest, BatchPolicy::kExact}) {
    ExpectUnevenSplits(1, 31, policy);
    ExpectUnevenSplits(2, 62, policy);
    ExpectUnevenSplits(3, 21, policy);
  }
  ExpectUnevenSplits(2, 31, BatchPolicy::kExact);
}

TEST(RunStep, RankStillInTheTailOfTheStepBefore_IsWaitedFor) {
  std::atomic<bool> out_of_memory = false;  // or rank 0 has failed otherwise
  const auto tell = [&] {
    out_of_memory = true;
    out_of_memory.notify_all();
  };
  InWorld(4, Asked(4), [&](Rank& rank) {
    rank.ExpectStep(0, [](const Moment&) { return absl::OkStatus(); });
    // Rank 3 has done step 0 but not begun step 1, when rank 0 runs out of memory in it.
    if (rank.rank() == 3) {
      out_of_memory.wait(false);
    }
    rank.ExpectStep(1, [&](const Moment& at) {
      if (at.rank == 0 && at.attempt == 0) {
        tell();
        return Scripted();
      }
      return absl::OkStatus();
    });
    if (rank.rank() == 0) {
      tell();
    }
    EXPECT_EQ(rank.micro(), 2);
  });
}

TEST(RunStep, CollectiveOfTheProgramBetweenSteps_IsFinishedFirst) {
  InWorld(4, Asked(4), [](Rank& rank) {
    for (std::int64_t step = 0; step < 20; ++step) {
      rank.ExpectStep(step, [](const Moment& at) {
        // Micro-batches of 4, 2 and 1: at steps 5 and 10.
        const std::size_t fits = at.step < 5 ? 4 : at.step < 10 ? 2 : 1;
        return at.rank == at.step % 4 && at.size > fits ? Scripted() : absl::OkStatus();
      });
      // Large, so that slower ranks are still in it when others begin the next step.
      std::vector<float> values(100'000, 1);
      const absl::Status status = rank.backend().AllReduceSum(std::span(values));
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(values[99'999], 4.0F);
    }
    EXPECT_EQ(rank.micro(), 1);
  });
}

TEST(RunStep, ExceptionsOfLibraries_AreOutOfMemoryToo) {
  InWorld(2, Asked(), [](Rank& rank) {
    rank.ExpectStep(0, [](const Moment& at) -> absl::Status {
      if (at.rank == 1 && at.size > 8) {
        throw std::bad_alloc();
      }
      if (at.rank == 0 && at.size > 4) {
        throw std::runtime_error("CUDA out of memory. Tried to allocate 2.00 GiB");
      }
      return absl::OkStatus();
    });
    EXPECT_EQ(rank.micro(), 4);
  });
}

TEST(RunStep, EmptyShares_TakePart) {
  InWorld(4, Asked(), [](Rank& rank) {
    // Two samples for four ranks; rank 0 has one of them.
    rank.ExpectStep(
        0,
        [](const Moment& at) {
          return at.rank == 0 && at.attempt == 0 ? Scripted() : absl::OkStatus();
        },
        2);
    EXPECT_EQ(rank.micro(), 4);
    // Only ranks that had begun have something to put back.
    EXPECT_LE(rank.retries(), rank.rank() < 2 ? 1 : 0);
  });
}

TEST(RunStep, AtTheFloor_EveryRankEndsWithAClearError) {
  PlanDefaults asked = Asked(4);
  asked.min_micro_batch_size = 2;
  InWorld(4, asked, [](Rank& rank) {
    const auto result = rank.Step(0, [](const Moment& at) {
      return at.rank == 1 ? OutOfMemory({3 << 20, 0, 0, 1 << 20, 0}, "scripted") : absl::OkStatus();
    });
    if (rank.rank() == 1) {
      EXPECT_TRUE(IsOutOfMemory(result.status())) << result.status();
      EXPECT_THAT(std::string(result.status().message()),
                  AllOf(HasSubstr("step 1, a micro-batch of 2: scripted (3.0 MiB asked"),
                        HasSubstr("--min-micro-batch-size=2"), HasSubstr("a shortage"),
                        HasSubstr("mixed precision")));
    } else {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
    }
    rank.Exit();
  });
}

TEST(RunStep, OtherErrors_AreTheCallers) {
  InWorld(1, Asked(), [](Rank& rank) {
    const auto result =
        rank.Step(0, [](const Moment&) { return absl::DataLossError("torn image"); });
    EXPECT_EQ(result.status(), absl::DataLossError("torn image"));
    EXPECT_THROW(
        rank.Step(0, [](const Moment&) -> absl::Status { throw std::runtime_error("bug"); })
            .IgnoreError(),
        std::runtime_error);
    // The step can be tried again, from nothing.
    rank.ExpectStep(0, [](const Moment&) { return absl::OkStatus(); });
  });
}

TEST(RunStep, WorldOfOne_HalvesDownToOneSampleThenGivesUp) {
  InWorld(1, Asked(), [](Rank& rank) {
    std::vector<std::size_t> sizes;
    const auto result = rank.Step(0, [&](const Moment& at) {
      sizes.push_back(at.size);
      return Scripted();
    });
    EXPECT_THAT(sizes, ElementsAre(32, 16, 8, 4, 2, 1));
    EXPECT_TRUE(IsOutOfMemory(result.status())) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("a micro-batch of 1: scripted"));
  });
}

TEST(RunStep, LaterDataParallel_KeepsTheLesson) {
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(1), 0, 1);
  const auto plan = context.AgreePlan(Asked());
  ASSERT_TRUE(plan.ok());
  {
    Rank first(context, *plan, {});
    first.ExpectStep(0,
                     [](const Moment& at) { return at.size > 8 ? Scripted() : absl::OkStatus(); });
  }
  Rank second(context, *plan, {});
  EXPECT_EQ(second.micro(), 8);
  second.ExpectStep(0,
                    [](const Moment& at) { return at.size > 4 ? Scripted() : absl::OkStatus(); });
  EXPECT_EQ(second.micro(), 4);
  EXPECT_EQ(context.AgreePlan(Asked())->micro_batch_size, 4);
}

TEST(RunStep, SecondDataParallelWithTheContext_IsRefused) {
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(1), 0, 1);
  const auto plan = context.AgreePlan(Asked());
  ASSERT_TRUE(plan.ok());
  const Rank first(context, *plan, {});
  const auto backend = CreateBackend(context);
  const auto second = DataParallel::Create(context, *plan, backend->get(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RunStep, WithoutTheContext_SplitsAsTheShareSaysAndGivesUpAtOnce) {
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(1), 0, 1);
  const auto backend = CreateBackend(context);
  auto parallel = DataParallel::Create(backend->get(), {});
  ASSERT_TRUE(parallel.ok());
  const std::vector<std::int64_t> ids = {1, 2, 3};
  StepShare share;
  share.samples = ids;
  share.micro_batches = {share.samples.subspan(0, 2), share.samples.subspan(2)};
  std::vector<std::size_t> sizes;
  const auto result = parallel->RunStep(share, [&](std::span<const std::int64_t> micro) {
    sizes.push_back(micro.size());
    return MicroResult{6, static_cast<double>(micro.size())};
  });
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(sizes, ElementsAre(2, 1));
  EXPECT_DOUBLE_EQ(result->mean_loss, 4);
  EXPECT_EQ(parallel->micro_batch_size(), 0);
  const auto failed = parallel->RunStep(
      share,
      [&](std::span<const std::int64_t>) -> absl::StatusOr<MicroResult> { return Scripted(); });
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("without the context"));
}

}  // namespace
}  // namespace ddl
