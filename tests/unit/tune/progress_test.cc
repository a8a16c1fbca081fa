// The words of the line that shows how far a trial is.
#include "launcher/tune/progress.h"

#include <gtest/gtest.h>

namespace ddl::tune {
namespace {

TEST(Progress, Text_SaysHowFarTheTrialIs) {
  TrialProgress progress{
      .micro_batch_size = 64, .steps_wanted = 23, .seconds = 12.4, .seconds_allowed = 300};
  EXPECT_EQ(ProgressText(progress), "micro-batch 64: no step yet, 12 s of 300");
  progress.steps = 1;
  EXPECT_EQ(ProgressText(progress), "micro-batch 64: 1 of 23 steps");
  progress.steps = 12;
  progress.samples_per_s = 81.25;
  EXPECT_EQ(ProgressText(progress), "micro-batch 64: 12 of 23 steps, 81.2 samples/s");
  progress.steps = 500;
  progress.samples_per_s = 8123.4;
  EXPECT_EQ(ProgressText(progress), "micro-batch 64: 500 steps, 8123 samples/s");
}

}  // namespace
}  // namespace ddl::tune
