// A trial's step log: its lines, the median that counts, two curves of the loss.
#include "launcher/tune/step_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace ddl::tune {
namespace {

using ::testing::SizeIs;

TEST(ReadSteps, WholeLines_AreReadOnceAndAPieceWaits) {
  std::vector<Step> steps;
  std::size_t position = 0;
  std::int64_t strange = 0;
  std::string text = "1,8,0.5,2.25,4096\n2,8,0.25,na";
  ReadSteps(text, &position, &steps, &strange);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].samples, 8);
  EXPECT_EQ(steps[0].seconds, 0.5);
  EXPECT_EQ(steps[0].loss, 2.25);
  EXPECT_EQ(steps[0].peak_bytes, 4096);
  text += "n,0\n";
  ReadSteps(text, &position, &steps, &strange);
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_TRUE(std::isnan(steps[1].loss));
  EXPECT_EQ(strange, 0);
}

TEST(ReadSteps, OtherLines_AreCountedAndLeftOut) {
  std::vector<Step> steps;
  std::size_t position = 0;
  std::int64_t strange = 0;
  ReadSteps(
      "step,samples,seconds,loss,peak\n\n1,2,3\n1,2,3,4,5,6\n1,-2,1,1,1\n1,nan,1,1,1\n"
      "1,2,inf,1,1\n1,2,-1,1,1\n1,2,1,1,-5\n1,2,1,1,1e300\n1,2,1,inf,0\r\n",
      &position, &steps, &strange);
  EXPECT_THAT(steps, SizeIs(1));
  EXPECT_EQ(strange, 10);
}

std::vector<Step> Steps(std::size_t count, double samples, double seconds) {
  return std::vector<Step>(count, Step{samples, seconds, 1, 100});
}

TEST(Measure, SlowFirstStepsAndPauses_DoNotCount) {
  std::vector<Step> steps = Steps(20, 8, 0.1);
  steps[0].seconds = 60;
  steps[2].seconds = 5;
  steps[10].seconds = 7;  // a checkpoint
  steps[15].samples = 3;  // an epoch's end
  steps[15].seconds = 0.05;
  steps[12].peak_bytes = 900;
  const Measurement measured = Measure(steps);
  EXPECT_DOUBLE_EQ(measured.samples_per_s, 80);
  EXPECT_EQ(measured.samples_per_step, 8);
  EXPECT_EQ(measured.steps, 16);
  EXPECT_EQ(measured.peak_bytes, 900);
}

TEST(Measure, EveryOtherStepIsAnEpochsEnd_TheWholeOnesCount) {
  std::vector<Step> steps = Steps(20, 1024, 4);
  for (std::size_t i = 1; i < steps.size(); i += 2) {
    steps[i] = {413, 2, 1, 100};
  }
  const Measurement measured = Measure(steps);
  EXPECT_EQ(measured.samples_per_step, 1024);
  EXPECT_EQ(measured.samples_per_s, 256);
}

TEST(Measure, TooFewSteps_IsNothing) {
  EXPECT_EQ(Measure({}).steps, 0);
  EXPECT_EQ(Measure(Steps(1, 8, 0.1)).steps, 0);
  EXPECT_EQ(Measure(Steps(2, 8, 0.1)).steps, 1);
  EXPECT_EQ(Measure(Steps(5, 8, 0)).steps, 0);
}

TEST(LossDifference, Curves_AreComparedStepByStep) {
  std::vector<Step> a = Steps(10, 8, 1);
  std::vector<Step> b = Steps(12, 8, 1);
  EXPECT_EQ(LossDifference(a, b), 0);
  for (Step& step : b) {
    step.loss = 1.1;
  }
  EXPECT_NEAR(LossDifference(a, b), 0.1 / 1.05, 1e-12);
  EXPECT_LT(LossDifference(a, {}), 0);
  b[3].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isinf(LossDifference(a, b)));
}

}  // namespace
}  // namespace ddl::tune
