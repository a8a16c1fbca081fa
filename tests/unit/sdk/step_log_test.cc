// The step log that DataParallel leaves: its lines, and who writes it.
#include "worker_sdk/src/step_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "ddl/data_parallel.h"
#include "tests/unit/sdk/world.h"

namespace ddl::internal {
namespace {

using ::ddl::testing::Meeting;
using ::ddl::testing::OnEveryRank;
using ::ddl::testing::ThreadBackend;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class StepLogTest : public ::testing::Test {
 protected:
  StepLogTest() : path_(::testing::TempDir() + "step_log_" + std::to_string(::getpid())) {
    std::remove(path_.c_str());
    ::setenv("DDL_STEP_LOG", path_.c_str(), 1);
  }
  ~StepLogTest() override {
    ::unsetenv("DDL_STEP_LOG");
    std::remove(path_.c_str());
  }

  [[nodiscard]] std::vector<std::string> Lines() const {
    std::ifstream in(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      lines.push_back(line);
    }
    return lines;
  }

  std::string path_;
};

struct Line {
  long long step = 0;
  double samples = 0;
  double seconds = 0;
  double loss = 0;
  long long bytes = 0;
};

Line Parse(const std::string& text) {
  Line line;
  EXPECT_EQ(std::sscanf(text.c_str(), "%lld,%lf,%lf,%lf,%lld", &line.step, &line.samples,
                        &line.seconds, &line.loss, &line.bytes),
            5)
      << text;
  return line;
}

TEST_F(StepLogTest, DataParallel_TwoRanks_RankZeroWritesALineAStepOfTheWholeWorld) {
  Meeting meeting(2);
  OnEveryRank(2, [&](int rank) {
    ThreadBackend backend(&meeting, rank);
    std::vector<float> value(4);
    std::vector<float> gradient(4);
    auto parallel = DataParallel::Create(&backend, {{"w", value, gradient}});
    ASSERT_TRUE(parallel.ok()) << parallel.status();
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(parallel->AddMicroBatch(rank == 0 ? 6 : 2, rank == 0 ? 3 : 1).ok());
      ASSERT_TRUE(parallel->FinishStep().ok());
    }
  });
  const std::vector<std::string> lines = Lines();
  ASSERT_THAT(lines, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const Line line = Parse(lines[static_cast<std::size_t>(i)]);
    EXPECT_EQ(line.step, i + 1);
    EXPECT_EQ(line.samples, 4);
    EXPECT_EQ(line.loss, 2);
    EXPECT_GE(line.seconds, 0);
    EXPECT_GT(line.bytes, 1 << 16);
  }
}

TEST_F(StepLogTest, MemoryProbe_Given_IsAskedInPlaceOfTheKernel) {
  const auto log = StepLog::FromEnvironment(0, [] { return std::int64_t{4711}; });
  ASSERT_NE(log, nullptr);
  log->Add(8, 1.5);
  ASSERT_THAT(Lines(), SizeIs(1));
  EXPECT_EQ(Parse(Lines()[0]).bytes, 4711);
}

TEST_F(StepLogTest, Loss_NotANumber_IsWrittenAsSuch) {
  const auto log = StepLog::FromEnvironment(0, nullptr);
  log->Add(8, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(Parse(Lines()[0]).loss));
}

TEST_F(StepLogTest, FromEnvironment_OtherRankOrNoVariable_IsNull) {
  EXPECT_EQ(StepLog::FromEnvironment(1, nullptr), nullptr);
  ::setenv("DDL_STEP_LOG", "", 1);
  EXPECT_EQ(StepLog::FromEnvironment(0, nullptr), nullptr);
  ::unsetenv("DDL_STEP_LOG");
  EXPECT_EQ(StepLog::FromEnvironment(0, nullptr), nullptr);
}

TEST_F(StepLogTest, FromEnvironment_SecondModel_DoesNotMixItsLinesIn) {
  auto first = StepLog::FromEnvironment(0, nullptr);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(StepLog::FromEnvironment(0, nullptr), nullptr);
  first.reset();
  EXPECT_NE(StepLog::FromEnvironment(0, nullptr), nullptr);
}

TEST_F(StepLogTest, File_CannotBeOpenedOrIsFull_TrainingGoesOnWithOneWarning) {
  ::testing::internal::CaptureStderr();
  ::setenv("DDL_STEP_LOG", "/nonexistent/steps", 1);
  EXPECT_EQ(StepLog::FromEnvironment(0, nullptr), nullptr);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("/nonexistent/steps"));
  ::setenv("DDL_STEP_LOG", "/dev/full", 1);
  const auto log = StepLog::FromEnvironment(0, nullptr);
  ASSERT_NE(log, nullptr);
  ::testing::internal::CaptureStderr();
  log->Add(8, 1);
  log->Add(8, 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("/dev/full"));
  EXPECT_EQ(said.find('\n'), said.size() - 1) << "one line";
}

}  // namespace
}  // namespace ddl::internal
