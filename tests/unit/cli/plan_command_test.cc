// `ddlaunch plan`: the table, the JSON, what is refused.
#include "launcher/cli/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class PlanLine : public CliTest {
 protected:
  PrintAndExit Plan(std::vector<std::string> args) {
    args.insert(args.begin(), "plan");
    const auto result = Parse(args);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok() || !std::holds_alternative<PrintAndExit>(*result)) {
      ADD_FAILURE() << "nothing to print";
      return {};
    }
    return std::get<PrintAndExit>(*result);
  }
  std::string Error(std::vector<std::string> args) {
    args.insert(args.begin(), "plan");
    const auto result = Parse(args);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  }
  Json PlanJson(std::vector<std::string> args) {
    args.emplace_back("--json");
    return Json::parse(Plan(std::move(args)).text);
  }
};

TEST_F(PlanLine, Worlds_EachItsPlanWithWhatWasHeldAndWhatMoved) {
  const PrintAndExit print = Plan(
      {"--global-batch-size=48", "--micro-batch-size=4", "--base-lr=0.4", "--base-batch-size=48",
       "--lr-scaling=linear", "--warmup-steps=100", "--total-samples=48000", "--world=4,3,2,5"});
  EXPECT_EQ(print.exit_code, 0);
  EXPECT_EQ(
      print.text,
      "world  micro  accum  global      rate  warm-up  steps  of what was asked for\n"
      "    4      4      3      48       0.4      100   1000  global and micro held\n"
      "    3      4      4      48       0.4      100   1000  global and micro held\n"
      "    2      4      6      48       0.4      100   1000  global and micro held\n"
      "    5      2      5      50  0.416667       96    960  global 48 -> 50, micro 4 -> 2\n");
}

TEST_F(PlanLine, ExactPolicy_SaysTheShares) {
  EXPECT_THAT(Plan({"--global-batch-size=48", "--batch-policy=exact", "--world=5"}).text,
              HasSubstr("    5     10      1      48  global held, 3 ranks x 10 + 2 x 9\n"));
}

TEST_F(PlanLine, WhatTheNumbersDoNotShow_IsSaidBelowOnceForItsWorlds) {
  const PrintAndExit print =
      Plan({"--global-batch-size=2042", "--max-micro-batch-size=64", "--batch-policy=fail",
            "--warmup-steps=10", "--total-samples=20420", "--world=1,2"});
  EXPECT_THAT(print.text,
              AllOf(HasSubstr("\nworlds 1..2: the warm-up of 20420 samples is not over before the "
                              "training of 20420 is: the rate\n  never reaches its full value\n"),
                    HasSubstr("\nworld 2: micro-batches of up to 64 fit, but the 1021 samples")));
  const Json json = PlanJson({"--global-batch-size=48", "--batch-policy=exact", "--world=5,4"});
  EXPECT_EQ(json["worlds"][0]["ranks_with_the_largest"], 3);
  EXPECT_EQ(json["worlds"][0]["even"], false);
  EXPECT_EQ(json["worlds"][0]["warnings"], Json::array());
  EXPECT_EQ(json["worlds"][1]["ranks_with_the_largest"], 4);
  EXPECT_EQ(json["worlds"][1]["even"], true);
}

TEST_F(PlanLine, WorldWithoutPlan_SaysWhyBelowOnce) {
  const PrintAndExit print =
      Plan({"--global-batch-size=48", "--batch-policy=fail", "--world=4,5,7"});
  EXPECT_EQ(print.exit_code, 0);
  EXPECT_THAT(print.text,
              AllOf(HasSubstr("    5      -      -       -  no plan, see below\n"),
                    HasSubstr("world 5: --global-batch-size=48 cannot be shared evenly by 5 ranks; "
                              "nearest: --global-batch-size=45\n  or 50, or --batch-policy=")));
  const PrintAndExit none = Plan({"--lr-scaling=linear", "--global-batch-size=48"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.text, HasSubstr("worlds 1..8: --lr-scaling=linear scales"));
}

TEST_F(PlanLine, UsualNumbers_FitAHundredColumns) {
  const std::string text =
      Plan({"--global-batch-size=1024", "--max-micro-batch-size=64", "--base-lr=0.1",
            "--base-batch-size=256", "--lr-scaling=linear", "--warmup-ratio=0.03",
            "--total-samples=115000000", "--batch-policy=fail", "--world=1..64"})
          .text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST_F(PlanLine, Json_HasTheRequestAndEachWorld) {
  const Json json = PlanJson({"--global-batch-size=48", "--micro-batch-size=4", "--base-lr=1e-3",
                              "--warmup-steps=5", "--world=4,5"});
  EXPECT_EQ(json["request"], Json::parse(R"({"global_batch_size": 48, "micro_batch_size": 4,
      "batch_policy": "nearest", "base_lr": 0.001, "warmup_steps": 5})"));
  ASSERT_EQ(json["worlds"].size(), 2U);
  const Json& four = json["worlds"][0];
  EXPECT_EQ(four["world_size"], 4);
  EXPECT_EQ(four["grad_accum_steps"], 3);
  EXPECT_EQ(four["rank_batch_sizes"], Json({12, 12}));
  EXPECT_EQ(four["learning_rate"], 0.001);
  EXPECT_EQ(four["total_steps"], nullptr);
  EXPECT_EQ(four["held"], Json({"global_batch_size", "micro_batch_size"}));
  EXPECT_EQ(four["moved"], Json::object());
  EXPECT_EQ(four["remark"], nullptr);
  const Json& five = json["worlds"][1];
  EXPECT_EQ(five["global_batch_size"], 50);
  EXPECT_EQ(five["moved"]["global_batch_size"], Json::parse(R"({"asked": 48, "actual": 50})"));
  EXPECT_THAT(five["remark"].get<std::string>(), HasSubstr("50 is used"));
}

TEST_F(PlanLine, JsonOfAWorldWithoutPlan_HasTheError) {
  const Json json = PlanJson({"--global-batch-size=48", "--batch-policy=fail", "--world=5"});
  EXPECT_THAT(json["worlds"][0]["error"].get<std::string>(), HasSubstr("nearest"));
  EXPECT_EQ(json["worlds"][0].size(), 2U);
}

TEST_F(PlanLine, WhatIsNone_IsRefusedByName) {
  EXPECT_THAT(Error({"--world=0"}), HasSubstr("--world=0"));
  EXPECT_THAT(Error({"--world=4..2"}), HasSubstr("--world=4..2"));
  EXPECT_THAT(Error({"--world=1..9999999"}), HasSubstr("--world=1..9999999"));
  EXPECT_THAT(Error({"--global-batch-size=99999999999999999999"}),
              HasSubstr("from 1 to 9223372036854775807"));
  EXPECT_THAT(Error({"--global-batch-size=0"}), HasSubstr("of 1 or more"));
  EXPECT_THAT(Error({"--nnodes=2"}), HasSubstr("--nnodes"));
  EXPECT_THAT(Error({"--globl-batch-size=2"}), HasSubstr("--global-batch-size"));
  EXPECT_THAT(Error({"train.py"}), AllOf(HasSubstr("train.py"), HasSubstr("./plan")));
}

TEST_F(PlanLine, NoBatchAtAll_IsOneLineNotATable) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{}, {"--json"}, {"--base-lr=0.1"}, {"--max-micro-batch-size=8"}}) {
    EXPECT_THAT(Error(args), AllOf(HasSubstr("give --global-batch-size or --micro-batch-size"),
                                   Not(HasSubstr("--batch-policy"))));
  }
}

TEST_F(PlanLine, Help_ExplainsRateAndSchedule) {
  EXPECT_THAT(Plan({"--help"}).text,
              AllOf(HasSubstr("Usage: ddlaunch plan"), HasSubstr("--warmup-ratio"),
                    HasSubstr("--json"), HasSubstr("nearest"), Not(HasSubstr("--nnodes"))));
}

TEST_F(PlanLine, ProgramOfThatName_IsRunByItsPath) {
  WriteFile("cwd/plan", "#!/bin/sh\n", true);
  EXPECT_EQ(Launch({"./plan"}).config.program_name, "./plan");
  EXPECT_EQ(Launch({"--", "plan"}).config.program_name, "plan");
}

}  // namespace
}  // namespace ddl::cli
