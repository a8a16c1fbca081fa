// What a node says of the plan.
#include "launcher/plan_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

core::RoundStart Start(std::int64_t round, std::int64_t world, std::int64_t micro) {
  core::RoundStart start;
  start.round = round;
  start.plan_request.global_batch_size = 48;
  start.plan_request.max_micro_batch_size = micro;
  start.plan = plan::Solve(start.plan_request, world).value();
  return start;
}

std::vector<std::string> Texts(const std::vector<PlanLine>& lines) {
  std::vector<std::string> texts;
  for (const PlanLine& line : lines) {
    texts.push_back((line.is_loud ? "! " : "") + line.text);
  }
  return texts;
}

TEST(PlanLines, FirstRound_SaysThePlan) {
  PlanLines lines{{}};
  EXPECT_THAT(
      Texts(lines.OnStart(Start(1, 4, 4))),
      ElementsAre(StartsWith("plan: global batch 48 = micro 4 x accumulation 3 x world 4")));
}

TEST(PlanLines, WorldChanges_SaysWhatMovedAndWhatWasHeld) {
  PlanLines lines{{}};
  lines.OnStart(Start(1, 4, 4));
  EXPECT_THAT(Texts(lines.OnStart(Start(2, 3, 4))),
              ElementsAre(StartsWith("plan: global batch 48 = micro 4 x accumulation 4 x world 3"),
                          "plan: since the last round: world 4 -> 3 and accumulation 3 -> 4; "
                          "global batch 48 and micro-batch 4 held"));
  EXPECT_THAT(lines.OnStart(Start(3, 3, 4)), SizeIs(1)) << "a restart: nothing moved";
}

TEST(PlanLines, ActualGlobalBatchIsAnother_IsLoud) {
  PlanLines lines{{}};
  core::RoundStart start = Start(1, 3, 4);
  start.plan_request.global_batch_size = 50;
  const auto said = Texts(lines.OnStart(start));
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_THAT(said[1], StartsWith("! global batch 50 cannot be shared evenly by 3 ranks: 48"));
}

TEST(PlanLines, WhatTheNumbersDoNotShow_IsLoudToo) {
  PlanLines lines{{}};
  core::RoundStart start = Start(1, 4, 4);
  start.plan_request.total_samples = 480;
  start.plan_request.warmup_steps = 10;
  start.plan = plan::Solve(start.plan_request, 4).value();
  const auto said = Texts(lines.OnStart(start));
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_THAT(said[1], StartsWith("! the warm-up of 480 samples is not over"));
  start.round = 2;
  EXPECT_THAT(lines.OnStart(start), SizeIs(1)) << "said before";
}

TEST(PlanLines, ProgramsPlan_IsSaidOnceAndComparedWithItsOwnKind) {
  PlanLines lines{{}};
  core::RoundStart start;
  start.round = 1;
  EXPECT_THAT(lines.OnStart(start), IsEmpty());
  core::PlanReply reply{1, Start(1, 4, 4).plan, "", {}};
  EXPECT_THAT(Texts(lines.OnAgreed(reply)), ElementsAre(HasSubstr("world 4")));
  EXPECT_THAT(lines.OnAgreed(reply), IsEmpty()) << "asked again after a reconnect";
  start.round = 2;
  lines.OnStart(start);
  EXPECT_THAT(lines.OnAgreed(reply), IsEmpty()) << "of the round before";
  reply = {2, Start(2, 2, 4).plan, "", {}};
  EXPECT_THAT(Texts(lines.OnAgreed(reply)),
              ElementsAre(HasSubstr("world 2"), HasSubstr("world 4 -> 2")));
}

TEST(PlanLines, LaunchersPlanThatTheProgramAddsNothingTo_IsSaidOnce) {
  PlanLines lines{{}};
  lines.OnStart(Start(1, 4, 4));
  EXPECT_THAT(lines.OnAgreed({1, Start(1, 4, 4).plan, "", {}}), IsEmpty());
}

TEST(PlanLines, ProgramAddsToTheLaunchersPlan_SaysSo) {
  PlanLines lines{{}};
  lines.OnStart(Start(1, 4, 4));
  core::PlanReply reply{1, Start(1, 4, 4).plan, "", {}};
  reply.plan->total_samples = 4800;
  reply.plan->total_steps = 100;
  reply.plan->learning_rate = 0.1;
  reply.plan->warmup_samples = 480;
  reply.plan->warmup_steps = 10;
  reply.plan->lr_decay = plan::LrDecay::kCosine;
  EXPECT_THAT(lines.OnAgreed(reply).front().text,
              EndsWith("], with what the program adds: learning rate 0.1, warm-up 10 steps, 100 "
                       "steps in all, decay cosine"));
}

TEST(PlanLines, OutOfMemoryLeavesAPoorSplit_IsSaidInTheSameRound) {
  PlanLines lines{{}};
  core::RoundStart start;
  start.round = 1;
  start.plan_request.global_batch_size = 31;
  start.plan = plan::Solve(start.plan_request, 1).value();
  lines.OnStart(start);
  const plan::Lowered lowered = plan::Lower(start.plan_request, *start.plan).value();
  core::PlanChanged changed;
  changed.round = 1;
  changed.revision = 1;
  changed.plan = lowered.plan;
  changed.plan_request = lowered.request;
  EXPECT_THAT(Texts(lines.OnChanged(changed)),
              Contains(AllOf(StartsWith("! "), HasSubstr("would train faster"))));
}

TEST(PlanLines, UnevenShares_AreSaidOnceForProgramsWithoutTheSdk) {
  PlanLines lines{{}};
  core::RoundStart start;
  start.round = 1;
  start.plan_request.global_batch_size = 48;
  start.plan_request.batch_policy = plan::BatchPolicy::kExact;
  start.plan = plan::Solve(start.plan_request, 5).value();
  const auto said = AllOf(StartsWith("! "), HasSubstr("DDL_RANK_BATCH_SIZE"));
  EXPECT_THAT(Texts(lines.OnStart(start)), Contains(said));
  start.round = 2;
  EXPECT_THAT(Texts(lines.OnStart(start)), Not(Contains(said)));
}

TEST(PlanLines, FlagsThatDoNothingYet_AreSaidOnceWithWhatIsMissing) {
  core::RoundStart start = Start(1, 4, 4);
  plan::Request flags = start.plan_request;
  flags.warmup_ratio = 0.03;
  PlanLines lines{flags};
  EXPECT_THAT(Texts(lines.OnStart(start)),
              Contains("! plan: not in force until the program gives what is missing, through the "
                       "SDK: --warmup-ratio=0.03 needs --total-samples"));
  start.round = 2;
  EXPECT_THAT(lines.OnStart(start), SizeIs(1));
}

TEST(PlanLines, RateWithoutABatch_IsSaidThoughThereIsNoPlan) {
  plan::Request flags;
  flags.base_lr = 0.1;
  PlanLines lines{flags};
  core::RoundStart start;
  start.round = 1;
  start.plan_request = flags;
  EXPECT_THAT(Texts(lines.OnStart(start)),
              ElementsAre(AllOf(StartsWith("! plan: not in force"), HasSubstr("--base-lr=0.1"))));
}

TEST(PlanLines, OutOfMemory_IsLoudOnceAndTheNextRoundDiffersFromIt) {
  PlanLines lines{{}};
  lines.OnStart(Start(1, 4, 4));
  core::PlanChanged changed;
  changed.round = 1;
  changed.revision = 1;
  changed.plan = Start(1, 4, 2).plan;
  changed.text = "rank 1 ran out";
  EXPECT_THAT(Texts(lines.OnChanged(changed)),
              ElementsAre("! rank 1 ran out", HasSubstr("micro 2 x accumulation 6")));
  EXPECT_THAT(lines.OnChanged(changed), IsEmpty()) << "repeated after a reconnect";
  EXPECT_THAT(lines.OnStart(Start(2, 4, 2)), SizeIs(1)) << "nothing moved since then";
}

TEST(PlanLines, OutOfMemoryUnderTheProgramsPlan_CountsForTheLaunchersToo) {
  PlanLines lines{{}};
  lines.OnStart(Start(1, 4, 4));
  core::PlanReply reply;
  reply.round = 1;
  reply.plan = Start(1, 4, 4).plan;
  reply.plan->learning_rate = 0.1;
  lines.OnAgreed(reply);
  core::PlanChanged changed;
  changed.round = 1;
  changed.revision = 1;
  changed.plan = Start(1, 4, 2).plan;
  changed.plan->learning_rate = 0.1;
  lines.OnChanged(changed);
  EXPECT_THAT(lines.OnStart(Start(2, 4, 2)), SizeIs(1)) << "nothing moved since then";
}

}  // namespace
}  // namespace ddl
