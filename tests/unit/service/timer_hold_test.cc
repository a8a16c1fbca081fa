// Timers wait after an absence, once, and not for ever.
#include "agent/service/timer_hold.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr Duration kMs = std::chrono::milliseconds(1);

class TimerHoldTest : public ::testing::Test {
 protected:
  Instant now_ = Instant{} + 1000 * kSecond;
  TimerHold hold_{kSecond, now_};
};

TEST_F(TimerHoldTest, InTime_TimersFireAtOnce) {
  const Instant timer = now_ + 5 * kSecond;
  EXPECT_EQ(hold_.WakeFor(timer), timer);
  EXPECT_TRUE(hold_.OnAwake(timer + 900 * kMs, timer));
}

TEST_F(TimerHoldTest, MuchTooLate_TimersWaitThatLongAgain) {
  const Instant timer = now_ + 5 * kSecond;
  const Instant awake = timer + 3 * kSecond;
  EXPECT_FALSE(hold_.OnAwake(awake, timer));
  EXPECT_EQ(hold_.WakeFor(timer), awake + kSecond);
  EXPECT_TRUE(hold_.OnAwake(awake + kSecond, timer));
}

TEST_F(TimerHoldTest, NoWordComes_TimersFireWhenTheHoldIsOver) {
  const Instant timer = now_ + 5 * kSecond;
  const Instant awake = timer + 3 * kSecond;
  EXPECT_FALSE(hold_.OnAwake(awake, timer));
  EXPECT_TRUE(hold_.OnAwake(hold_.WakeFor(timer) + kMs, timer)) << "no loop wakes to the instant";
}

TEST_F(TimerHoldTest, WordsKeepComing_TimersFireAllTheSame) {
  const Instant timer = now_ + 5 * kSecond;
  const Instant awake = timer + 3 * kSecond;
  EXPECT_FALSE(hold_.OnAwake(awake, timer));
  for (int step = 1; step < 10; ++step) {  // the timer gets later and later
    EXPECT_FALSE(hold_.OnAwake(awake + step * 100 * kMs, timer));
  }
  EXPECT_TRUE(hold_.OnAwake(awake + kSecond, timer));
}

TEST_F(TimerHoldTest, AbsentWhileItHandledAWord_IsNoticed) {
  const Instant timer = now_ + 5 * kSecond;
  EXPECT_TRUE(hold_.OnAwake(now_ + kSecond, timer));
  EXPECT_FALSE(hold_.OnAwake(now_ + 8 * kSecond, timer));
}

TEST_F(TimerHoldTest, NoTimer_NothingToHold) {
  EXPECT_TRUE(hold_.OnAwake(now_ + 100 * kSecond, std::nullopt));
}

}  // namespace
}  // namespace ddl
