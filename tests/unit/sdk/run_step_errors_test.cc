// RunStep where a step cannot be done again, and what is said where it can: a world
// of one, whose agent and connections fail as told. run_step_test.cc has real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddl/data_parallel.h"
#include "ddl/out_of_memory.h"
#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::MakeContext;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Two of them would speak for one rank.
static_assert(!std::is_copy_constructible_v<DataParallel>);
static_assert(!std::is_copy_assignable_v<DataParallel>);
static_assert(std::is_move_constructible_v<DataParallel>);
static_assert(std::is_move_assignable_v<DataParallel>);

constexpr std::int64_t kGlobal = 8;

// One rank's agent: keeps the reports, and fails barriers as told.
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
  absl::Status Reconnect() override { return reconnect; }
  void Interrupt() override {}
  absl::Status Close() override { return absl::OkStatus(); }

  absl::Status reduce;
  absl::Status reconnect;
};

class RunStepErrors : public ::testing::Test {
 protected:
  // With the context, whose launcher there is or is not.
  DataParallel WithContext(bool has_launcher = false) {
    internal::Membership membership;
    membership.has_launcher = has_launcher;
    const Context context = internal::ContextAccess::Make(membership, agent_, {});
    PlanDefaults asked;
    asked.global_batch_size = kGlobal;
    return DataParallel::Create(context, context.AgreePlan(asked).value(), &backend_, {}).value();
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

TEST_F(RunStepErrors, AgreementFails_TheAgentKnowsThatMemoryIsWhy) {
  agent_->barrier = absl::DeadlineExceededError("rank 3 did not come");
  DataParallel parallel = WithContext();
  const auto result = Step(parallel, Samples(), 4);
  ExpectExitTold(result.status(), 2);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("step 1, a micro-batch of 8: scripted"),
                    HasSubstr("rank 3 did not come"), HasSubstr("mixed precision")));
}

TEST_F(RunStepErrors, ReconnectFails_TheAgentKnowsThatMemoryIsWhy) {
  backend_.reconnect = absl::UnavailableError("rank 3 is gone");
  DataParallel parallel = WithContext();
  const auto result = Step(parallel, Samples(), 4);
  ExpectExitTold(result.status(), 2);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("scripted"), HasSubstr("rank 3 is gone")));
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

}  // namespace
}  // namespace ddl
