// RunStep where a step cannot be done again, and what is said where it can: a world
// of one, whose agent and connections fail as told. run_step_test.cc has real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddl/data_parallel.h"
#include "ddl/out_of_memory.h"
#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Two of them would speak for one rank.
static_assert(!std::is_copy_constructible_v<DataParallel>);
static_assert(!std::is_copy_assignable_v<DataParallel>);
static_assert(std::is_move_constructible_v<DataParallel>);
static_assert(std::is_move_assignable_v<DataParallel>);

constexpr std::int64_t kGlobal = 8;

// One rank's agent: keeps the reports, and fails barriers and watching as told.
class Agent final : public testing::ForwardingGateway {
 public:
  Agent() : ForwardingGateway(1) {}

  absl::Status Barrier(std::string_view name, Timeout timeout,
                       const std::stop_token& stop) override {
    return barrier.ok() ? ForwardingGateway::Barrier(name, timeout, stop) : barrier;
  }
  absl::StatusOr<internal::PlanRevision> ReportOutOfMemory(
      const internal::OutOfMemoryReport& report) override {
    reports.push_back(report);
    return ForwardingGateway::ReportOutOfMemory(report);
  }

  absl::StatusOr<internal::PlanRevision> WatchPlan(int after,
                                                   const std::stop_token& stop) override {
    ++watched;
    watched.notify_all();
    return watched <= failing_watches ? absl::StatusOr<internal::PlanRevision>(watch)
                                      : ForwardingGateway::WatchPlan(after, stop);
  }
  void AwaitWatch(int times) const {
    for (int seen = watched; seen < times; seen = watched) {
      watched.wait(seen);
    }
  }

  // How the first so many times end; set before the DataParallel is created.
  absl::Status watch;
  int failing_watches = 0;
  std::atomic<int> watched = 0;
  absl::Status barrier;  // set before the first report
  std::vector<internal::OutOfMemoryReport> reports;
};

// A rank alone, whose operations end as told.
class Alone final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "alone"; }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }
  absl::Status AllReduceSum(std::span<float> /*values*/) override { return reduce; }
  absl::Status AllReduceSum(std::span<double> /*values*/) override { return reduce; }
  absl::Status Broadcast(std::span<std::byte> /*bytes*/, int /*root*/) override {
    return absl::OkStatus();
  }
  absl::Status Barrier() override { return absl::OkStatus(); }
  absl::Status Reconnect() override {
    order.emplace_back("connects anew");
    return reconnect;
  }
  void Interrupt() override {}
  absl::Status Close() override { return absl::OkStatus(); }

  absl::Status reduce;
  absl::Status reconnect;
  std::vector<std::string> order;  // of what happens
};

class RunStepErrors : public ::testing::Test {
 protected:
  // With the context, whose launcher there is or is not.
  DataParallel WithContext(bool has_launcher = false, const DataParallelOptions& options = {}) {
    internal::Membership membership;
    membership.has_launcher = has_launcher;
    const Context context = internal::ContextAccess::Make(membership, agent_, {});
    PlanDefaults asked;
    asked.global_batch_size = kGlobal;
    return DataParallel::Create(context, context.AgreePlan(asked).value(), &backend_, {}, options)
        .value();
  }

  // Runs out of memory with micro-batches above `fits`.
  absl::StatusOr<StepResult> Step(DataParallel& parallel, const StepShare& share,
                                  std::size_t fits = kGlobal) {
    return parallel.RunStep(
        share, [&](std::span<const std::int64_t> micro) -> absl::StatusOr<MicroResult> {
          sizes_.push_back(micro.size());
          return micro.size() > fits ? absl::StatusOr<MicroResult>(OutOfMemory({}, "scripted"))
                                     : MicroResult{1, static_cast<double>(micro.size())};
        });
  }

  StepShare Samples() const {
    StepShare share;
    share.samples = ids_;
    return share;
  }

  // The last word to the agent is that this worker exits for lack of memory.
  void ExpectExitTold(const absl::Status& status, std::size_t reports) {
    EXPECT_TRUE(IsOutOfMemory(status)) << status;
    ASSERT_THAT(agent_->reports, SizeIs(reports));
    for (const internal::OutOfMemoryReport& report : agent_->reports) {
      EXPECT_EQ(report.exiting, &report == &agent_->reports.back());
      EXPECT_EQ(report.micro_batch_size, kGlobal);
      EXPECT_EQ(report.step, 1);
    }
  }

  const std::vector<std::int64_t> ids_ = {0, 1, 2, 3, 4, 5, 6, 7};
  std::shared_ptr<Agent> agent_ = std::make_shared<Agent>();
  Alone backend_;
  std::vector<std::size_t> sizes_;  // of the micro-batches that were begun
};

// The micro-batch is halved by then: to count the failure as lack of memory would halve
// it once more, and forgive a peer that hangs.
TEST_F(RunStepErrors, AgreementFails_IsAFailureOfThePeerThatIsMissing) {
  agent_->barrier = absl::DeadlineExceededError("rank 3 did not come");
  DataParallel parallel = WithContext();
  const absl::Status status = Step(parallel, Samples(), 4).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_FALSE(IsOutOfMemory(status)) << status;
  EXPECT_THAT(agent_->reports, SizeIs(1)) << "it does not say that it exits for lack of memory";
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a peer did not come within"), HasSubstr("rank 3 did not come"),
                    Not(HasSubstr("scripted"))))
      << "words for lack of memory are read as such";
}

TEST_F(RunStepErrors, ReconnectFails_IsAFailureOfTheConnection) {
  backend_.reconnect = absl::UnavailableError("rank 3 is gone");
  DataParallel parallel = WithContext();
  const absl::Status status = Step(parallel, Samples(), 4).status();
  EXPECT_EQ(status, backend_.reconnect);
  EXPECT_THAT(agent_->reports, SizeIs(1));
}

TEST_F(RunStepErrors, OutOfMemoryInACollective_IsNotDoneAgain) {
  DataParallel parallel = WithContext();
  backend_.reduce = OutOfMemory({}, "the library's buffers");
  const auto result = Step(parallel, Samples());
  EXPECT_THAT(sizes_, ElementsAre(8));
  ExpectExitTold(result.status(), 1);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("the library's buffers"), HasSubstr("may have finished the step")));
}

TEST_F(RunStepErrors, MicroBatchesAloneWithTheContext_AreRefusedWithWords) {
  DataParallel parallel = WithContext();
  StepShare share;
  share.micro_batches = {ids_};
  const auto result = Step(parallel, share);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("StepShare::samples"));
  EXPECT_THAT(sizes_, SizeIs(0));
  EXPECT_TRUE(Step(parallel, StepShare()).ok()) << "an empty share is one";
}

TEST_F(RunStepErrors, SamplesAloneWithoutTheContext_AreOneMicroBatch) {
  DataParallel parallel = DataParallel::Create(&backend_, {}).value();
  const auto result = Step(parallel, Samples());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(sizes_, ElementsAre(8));
  EXPECT_EQ(result->weight, 8);
  EXPECT_EQ(Step(parallel, StepShare())->weight, 0);
  EXPECT_THAT(sizes_, SizeIs(1));
}

TEST_F(RunStepErrors, UnderALauncher_OnlyTheHintIsSaidAndOnce) {
  DataParallel parallel = WithContext(/*has_launcher=*/true);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(Step(parallel, Samples(), 2).ok());  // 8, 4, 2
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ddl: rank 0, step 1: out of memory: scripted. " + OutOfMemoryHints() + "\n");
}

TEST_F(RunStepErrors, WithoutALauncher_EachChangeIsSaid) {
  DataParallel parallel = WithContext();
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(Step(parallel, Samples(), 2).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ddl: rank 0, step 1: out of memory: micro-batch 8 -> 4, and the step is done again\n"
            "ddl: rank 0, step 1: out of memory: scripted. " +
                OutOfMemoryHints() +
                "\n"
                "ddl: rank 0, step 1: out of memory: micro-batch 4 -> 2, and the step is done "
                "again\n");
}

TEST_F(RunStepErrors, DeviceMemoryIsGivenBack_BeforeTheRanksConnectAnew) {
  DataParallelOptions options;
  options.before_retry = [this] { backend_.order.emplace_back("gives back"); };
  DataParallel parallel = WithContext(false, options);
  ASSERT_TRUE(Step(parallel, Samples(), 4).ok());
  EXPECT_THAT(backend_.order, ElementsAre("gives back", "connects anew"));
}

// ---- watching the plan ------------------------------------------------------

TEST_F(RunStepErrors, AgentOutOfReachForAWhile_IsAskedAgainAndOneLineSaysSo) {
  agent_->watch = absl::UnavailableError("the agent cannot be reached");
  agent_->failing_watches = 4;
  ::testing::internal::CaptureStderr();
  DataParallel parallel = WithContext(/*has_launcher=*/true);
  agent_->AwaitWatch(5);
  const auto result = Step(parallel, Samples(), 4);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(sizes_, ElementsAre(8, 4, 4));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              StartsWith("ddl: warning: rank 0 is not told when the plan changes: the agent cannot "
                         "be reached; it goes on trying\n"
                         "ddl: rank 0, step 1: out of memory: scripted"));
}

TEST_F(RunStepErrors, AgentOutOfReachForAMoment_IsNoNews) {
  agent_->watch = absl::UnavailableError("the agent cannot be reached");
  agent_->failing_watches = 2;
  ::testing::internal::CaptureStderr();
  {
    const DataParallel parallel = WithContext();
    agent_->AwaitWatch(3);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(RunStepErrors, AgentThatCannotTell_IsAWarningAtOnce) {
  agent_->watch = absl::UnimplementedError("no such call");
  agent_->failing_watches = 1;
  ::testing::internal::CaptureStderr();
  {
    const DataParallel parallel = WithContext();
    agent_->AwaitWatch(1);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ddl: warning: rank 0 is not told when the plan changes: no such call; if a rank runs "
            "out of memory, the step cannot be done again\n");
}

TEST_F(RunStepErrors, EndOfTheRound_IsNoNews) {
  agent_->watch = absl::AbortedError("the round is over");
  agent_->failing_watches = 1;
  ::testing::internal::CaptureStderr();
  {
    const DataParallel parallel = WithContext();
    agent_->AwaitWatch(1);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// ---- micro-batches without weight ---------------------------------------------

struct Masked {
  StepResult result;
  float gradient = 0;
  int computed = 0;  // micro-steps
  int retries = 0;
  std::string said;
};

// A step of micro-batches of these weights, whose loss and gradient are their weight's
// double, or 0/0.
Masked RunMasked(Backend& backend, const std::vector<double>& weights) {
  std::vector<float> value(1);
  std::vector<float> gradient(1);
  Masked out;
  DataParallelOptions options;
  options.before_retry = [&] { ++out.retries; };
  DataParallel parallel = DataParallel::Create(&backend, {{"w", value, gradient}}, options).value();
  std::vector<std::int64_t> ids(weights.size());
  std::iota(ids.begin(), ids.end(), 0);
  StepShare share;
  share.samples = ids;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    share.micro_batches.push_back(share.samples.subspan(i, 1));
  }
  ::testing::internal::CaptureStderr();
  out.result = parallel
                   .RunStep(share,
                            [&](std::span<const std::int64_t> micro) {
                              ++out.computed;
                              const double weight = weights[static_cast<std::size_t>(micro[0])];
                              const double mean = weight > 0 ? 2 : std::nan("");
                              gradient[0] += static_cast<float>(mean * weight);
                              return MicroResult{mean * weight, weight};
                            })
                   .value();
  out.said = ::testing::internal::GetCapturedStderr();
  out.gradient = gradient[0];
  return out;
}

TEST_F(RunStepErrors, NanGradientWithoutWeight_IsLeftOut) {
  for (const std::vector<double>& weights :
       {std::vector<double>{3, 0}, {0, 3}, {3, 0, 5}, {3, 0, 5, 0}, {0, 3, 0, 0, 1}}) {
    const Masked masked = RunMasked(backend_, weights);
    EXPECT_EQ(masked.result.mean_loss, 2);
    EXPECT_EQ(masked.result.weight, std::accumulate(weights.begin(), weights.end(), 0.0));
    EXPECT_EQ(masked.gradient, 2);
    EXPECT_EQ(masked.said.empty(), masked.retries == 0) << masked.said;
    EXPECT_LE(std::count(masked.said.begin(), masked.said.end(), '\n'), 1) << masked.said;
  }
}

TEST_F(RunStepErrors, NanGradientWithoutWeightBeforeOthers_CostsNothing) {
  EXPECT_EQ(RunMasked(backend_, {0, 3}).computed, 2);
  const Masked none = RunMasked(backend_, {0, 0});
  EXPECT_EQ(none.computed, 2);
  EXPECT_EQ(none.result.mean_loss, 0);
  EXPECT_EQ(none.gradient, 0);
  // After others: those before it again, once.
  const Masked last = RunMasked(backend_, {3, 4, 0});
  EXPECT_EQ(last.computed, 5);
  EXPECT_EQ(last.retries, 1);
  EXPECT_THAT(last.said, HasSubstr("rank 0, step 1: a micro-batch of weight 0"));
}

// ---- numbers ------------------------------------------------------------------

TEST_F(RunStepErrors, StepsOfBothKinds_AreCountedInOne) {
  DataParallel parallel = WithContext(/*has_launcher=*/true);
  parallel.set_next_step(40);
  ASSERT_TRUE(Step(parallel, Samples()).ok());
  ASSERT_TRUE(parallel.FinishStep().ok());
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(Step(parallel, Samples(), 4).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), StartsWith("ddl: rank 0, step 42: "));
}

}  // namespace
}  // namespace ddl
