// WithoutGaps, NotInForce and CheckCompletable: a launcher's request before the program
// has spoken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "agent/plan/flag_names.h"
#include "agent/plan/plan.h"
#include "tests/unit/plan/any_request.h"

namespace ddl::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Request Global48() {
  Request request;
  request.global_batch_size = 48;
  return request;
}

// As a launch does: the whole if it can be had, else what has no gaps.
std::vector<std::string> Said(const Request& launcher) {
  Request in_force;
  if (launcher.has_batch()) {
    in_force = Solve(launcher, 4).ok() ? launcher : WithoutGaps(launcher);
    EXPECT_TRUE(Solve(in_force, 4).ok()) << Describe(launcher);
  }
  return NotInForce(launcher, in_force);
}

TEST(WithoutGaps, PartsThatTheProgramMayComplete_AreLeftOut) {
  Request request;
  request.global_batch_size = 48;
  const Request batch = request;
  request.lr_scaling = LrScaling::kLinear;
  request.scale_adam = true;
  request.warmup_ratio = 0.1;
  request.lr_decay = LrDecay::kCosine;
  EXPECT_FALSE(Solve(request, 4).ok());
  EXPECT_EQ(WithoutGaps(request), batch);
  request.warmup_ratio.reset();
  request.warmup_epochs = 1;
  request.lr_decay = LrDecay::kStep;
  request.lr_decay_epochs = 30;
  request.lr_decay_factor = 0.5;
  EXPECT_EQ(WithoutGaps(request), batch);
}

TEST(WithoutGaps, WhatIsWhole_Stays) {
  Request request;
  request.global_batch_size = 48;
  request.base_lr = 0.1;
  request.base_batch_size = 12;
  request.lr_scaling = LrScaling::kSqrt;
  request.scale_adam = true;
  request.total_samples = 4800;
  request.warmup_ratio = 0.1;
  request.warmup_start_lr = 0.01;
  request.lr_decay = LrDecay::kCosine;
  EXPECT_EQ(WithoutGaps(request), request);
}

TEST(NotInForce, WhatIsWhole_NeedsNoWords) {
  Request request = Global48();
  request.base_lr = 0.1;
  request.base_batch_size = 12;
  request.lr_scaling = LrScaling::kSqrt;
  request.warmup_steps = 10;
  request.max_micro_batch_size = 4;
  EXPECT_THAT(Said(request), IsEmpty());
  request.lr_scaling = LrScaling::kNone;  // turned off, and not forgotten
  EXPECT_THAT(Said(request), IsEmpty());
}

TEST(NotInForce, LengthWithoutItsWhole_NamesBoth) {
  Request request = Global48();
  request.warmup_ratio = 0.03;
  EXPECT_THAT(Said(request), ElementsAre("--warmup-ratio=0.03 needs --total-samples"));
  request.lr_decay = LrDecay::kCosine;
  EXPECT_THAT(Said(request),
              ElementsAre("--warmup-ratio=0.03 and --lr-decay=cosine need --total-samples"));
  request = Global48();
  request.warmup_epochs = 2;
  EXPECT_THAT(Said(request), ElementsAre("--warmup-epochs=2 needs --epoch-samples"));
}

TEST(NotInForce, ScalingWithoutItsBase_SaysThatNoRateIsSet) {
  Request request = Global48();
  request.base_lr = 0.1;
  request.lr_scaling = LrScaling::kLinear;
  EXPECT_THAT(Said(request), ElementsAre("--base-lr=0.1 and --lr-scaling=linear need "
                                         "--base-batch-size: no learning rate is set"));
  request = Global48();
  request.lr_scaling = LrScaling::kLinear;
  EXPECT_THAT(Said(request), ElementsAre("--lr-scaling=linear needs --base-lr and "
                                         "--base-batch-size: no learning rate is set"));
}

TEST(NotInForce, BaseWithoutScaling_DoesNothing) {
  Request request = Global48();
  request.base_lr = 0.1;
  request.base_batch_size = 12;
  EXPECT_THAT(Said(request), ElementsAre("--base-batch-size=12 needs --lr-scaling"));
  request.scale_adam = true;
  request.adam_beta2 = 0.98;
  EXPECT_THAT(Said(request),
              ElementsAre("--base-batch-size=12 needs --lr-scaling",
                          "--adam-beta2=0.98 and --scale-adam=true need --lr-scaling=sqrt"));
}

TEST(NotInForce, DecayInParts_NamesTheOther) {
  Request request = Global48();
  request.lr_decay_factor = 0.5;
  request.lr_decay_steps = 10;
  EXPECT_THAT(Said(request),
              ElementsAre("--lr-decay-steps=10 and --lr-decay-factor=0.5 need --lr-decay=step"));
  request = Global48();
  request.lr_decay = LrDecay::kStep;
  EXPECT_THAT(Said(request),
              ElementsAre("--lr-decay=step needs --lr-decay-steps or --lr-decay-epochs"));
}

TEST(NotInForce, NoBatch_NothingIs) {
  Request request;
  request.base_lr = 0.1;
  request.warmup_ratio = 0.5;
  request.max_micro_batch_size = 8;
  EXPECT_THAT(Said(request),
              ElementsAre("--max-micro-batch-size=8 and --base-lr=0.1 need a batch size",
                          "--warmup-ratio=0.5 needs --total-samples"));
}

std::string Refusal(const Request& launcher) {
  return std::string(CheckCompletable(launcher).message());
}

TEST(CheckCompletable, WhatIsOnlyMissing_Passes) {
  Request request;
  request.lr_scaling = LrScaling::kLinear;
  request.warmup_ratio = 0.1;
  request.lr_decay = LrDecay::kStep;
  EXPECT_EQ(Refusal(request), "");
  request = Request();
  request.scale_adam = true;
  request.lr_decay_factor = 0.5;
  EXPECT_EQ(Refusal(request), "");
}

TEST(CheckCompletable, WhatNoProgramMends_IsRefusedWithTheFlags) {
  Request request;
  request.lr_decay = LrDecay::kCosine;
  request.lr_decay_factor = 0.5;
  EXPECT_THAT(Refusal(request), HasSubstr("--lr-decay-factor=0.5 with --lr-decay=cosine"));
  request = Request();
  request.lr_scaling = LrScaling::kLinear;
  request.scale_adam = true;
  EXPECT_THAT(Refusal(request), HasSubstr("nearest: --lr-scaling=sqrt"));
  request = Request();
  request.warmup_ratio = 0.1;
  request.warmup_steps = 5;
  EXPECT_THAT(Refusal(request), HasSubstr("--warmup-steps=5 and --warmup-ratio=0.1"));
  request = Request();
  request.max_micro_batch_size = 4;
  request.min_micro_batch_size = 8;
  EXPECT_THAT(Refusal(request), HasSubstr("nearest: --min-micro-batch-size=4"));
  request = Request();
  request.warmup_ratio = 1.5;
  EXPECT_THAT(Refusal(request), HasSubstr("out of range"));
}

// What a launch may be given: each flag is in force, or named.
TEST(NotInForceProperty, AnyRequest_EachFlagIsInForceOrNamed) {
  Random random(8);
  int named = 0;
  for (int i = 0; i < 100'000; ++i) {
    Trial trial = AnyBatch(random);
    AddRate(random, trial.request);
    if (random.OneIn(2)) {
      trial.request.base_lr.reset();
    }
    if (random.OneIn(2)) {
      trial.request.lr_scaling.reset();
    }
    const Request whole = WithoutGaps(trial.request);
    if (!CheckCompletable(trial.request).ok() || !Solve(whole, trial.world).ok()) {
      continue;
    }
    std::string said;
    for (const std::string& line : NotInForce(trial.request, whole)) {
      said += line + "\n";
    }
    ForEachFlag([&](std::string_view name, auto field) {
      if ((trial.request.*field).has_value() && name != "--base-batch-size") {
        const std::string flag = FlagText(name, *(trial.request.*field));
        EXPECT_NE((whole.*field).has_value(), said.find(flag) != std::string::npos) << flag;
        named += (whole.*field).has_value() ? 0 : 1;
      }
    });
    EXPECT_EQ(said.find("what else"), std::string::npos);
    ASSERT_FALSE(HasFailure()) << said << Describe(trial.request);
  }
  EXPECT_GT(named, 1000);
}

}  // namespace
}  // namespace ddl::plan
