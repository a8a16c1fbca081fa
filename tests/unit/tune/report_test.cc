// What tune leaves behind: a file that --config takes whatever is in it, rows, words.
#include "launcher/tune/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "launcher/cli/config_file.h"
#include "launcher/tune/proposal.h"

namespace ddl::tune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TrialResult Trial(std::int64_t micro, double samples_per_s) {
  TrialResult trial;
  trial.request.name = "trial";
  trial.request.micro_batch_size = micro;
  trial.outcome = Outcome::kFits;
  trial.measured = {20, 1, samples_per_s, static_cast<double>(micro), 1 << 20};
  trial.peak_bytes = 1 << 20;
  trial.memory_part = 0.25;
  trial.steps.assign(2000, Step{static_cast<double>(micro), 0.1, 2.5, 1 << 20});
  return trial;
}

Findings Found() {
  Findings findings;
  findings.trials = {Trial(1, 100), Trial(2, 180), Trial(4, 190)};
  findings.trials.push_back(Trial(8, 0));
  findings.trials.back().outcome = Outcome::kOutOfMemory;
  findings.trials.back().measured = {};
  findings.trials.back().steps.clear();
  findings.choice = Choice{2, Reason::kKnee};
  findings.best_samples_per_s = 190;
  findings.device = "this host";
  findings.device_bytes = 4 << 20;
  return findings;
}

TuneConfig Config() {
  TuneConfig config;
  config.program = {"train_bin", "--epochs=3"};
  return config;
}

TEST(Yaml, WithoutGlobalBatch_IsOneMicroBatchAStep) {
  const auto values = cli::ParseConfig(YamlText(Config(), Found()), "t", cli::Command::kLaunch);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(cli::FlagId::kMicroBatchSize).text, "2");
  EXPECT_EQ(values->at(cli::FlagId::kGradAccumSteps).text, "1");
}

TEST(Yaml, WithGlobalBatch_HasTheChoiceAsItsCap) {
  TuneConfig config = Config();
  config.plan.global_batch_size = 64;
  config.plan_flags = {{"global-batch-size", "64"}, {"scale-adam", "true"}};
  const auto values = cli::ParseConfig(YamlText(config, Found()), "t", cli::Command::kLaunch);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(cli::FlagId::kMaxMicroBatchSize).text, "2");
  EXPECT_EQ(values->at(cli::FlagId::kGlobalBatchSize).text, "64");
  EXPECT_EQ(values->count(cli::FlagId::kMicroBatchSize), 0);
  const plan::Request request = ProposedRequest(config, 2);
  EXPECT_EQ(request.max_micro_batch_size, 2);
  EXPECT_EQ(request.batch_policy, plan::BatchPolicy::kNearest);
}

TEST(Proposal, FloorThatDoesNotFit_IsLeftOutAndSaid) {
  TuneConfig config = Config();
  config.plan.min_micro_batch_size = 2;
  config.plan_flags = {{"min-micro-batch-size", "2"}};
  EXPECT_EQ(ProposedRequest(config, 2).min_micro_batch_size, 2);
  EXPECT_THAT(YamlText(config, Found()), HasSubstr("\nmin-micro-batch-size: 2\n"));
  EXPECT_EQ(FloorLine(config, Found()), "");
  config.plan.min_micro_batch_size = 4;
  config.plan_flags = {{"min-micro-batch-size", "4"}};
  EXPECT_EQ(ProposedRequest(config, 2).min_micro_batch_size, std::nullopt);
  EXPECT_TRUE(plan::Solve(ProposedRequest(config, 2), 3).ok());
  EXPECT_THAT(YamlText(config, Found()), Not(HasSubstr("min-micro-batch-size:")));
  EXPECT_THAT(YamlText(config, Found()), HasSubstr("# --min-micro-batch-size=4 does not fit"));
}

TEST(Yaml, AnyTextOfTheUser_ComesBackAsItWas) {
  for (const std::string text : {"0.1", "1e-3", "it's", "a: b # c", "- x", "", "null", "a b"}) {
    TuneConfig config = Config();
    config.program = {"train\n.py", "#\x01"};
    config.plan_flags = {{"base-lr", text}};
    const auto values = cli::ParseConfig(YamlText(config, Found()), "t", cli::Command::kLaunch);
    if (text == "null") {
      continue;  // no flag of the plan takes the word
    }
    ASSERT_TRUE(values.ok()) << values.status() << YamlText(config, Found());
    EXPECT_EQ(values->at(cli::FlagId::kBaseLr).text, text);
  }
}

TEST(Yaml, Remarks_SayHowItWasFound) {
  Findings findings = Found();
  findings.interrupted = true;
  EXPECT_THAT(YamlText(Config(), findings),
              AllOf(HasSubstr("ddlaunch tune train_bin --epochs=3"), HasSubstr("180 samples/s"),
                    HasSubstr("1.0 MiB of 4.0 MiB (this host)"), HasSubstr("interrupted"),
                    HasSubstr("micro-batch 8: out of memory")));
}

TEST(Words, Choice_SaysWhyItIsTheOne) {
  TuneConfig config = Config();
  config.bounded_by = "--max-micro-batch-size=2";
  Findings findings = Found();
  EXPECT_EQ(ChoiceLine(config, findings),
            "knee: micro-batch 2, the smallest with 90 % of the best samples/s");
  findings.choice->reason = Reason::kBound;
  EXPECT_EQ(ChoiceLine(config, findings),
            "micro-batch 2: samples/s still rising at --max-micro-batch-size=2; allow more");
  EXPECT_THAT(GnuplotScript(config, findings), HasSubstr("choice: 2 (still rising)"));
  findings.choice->reason = Reason::kMemory;
  EXPECT_THAT(ChoiceLine(config, findings), HasSubstr("still rising where the memory ends"));
  findings.trials = {Trial(2, 180), Found().trials.back()};
  EXPECT_EQ(ChoiceLine(config, findings),
            "micro-batch 2: the only one measured where the memory ends; it is the largest found "
            "that fits");
}

TEST(Csv, Rows_HaveTheColumnsOfTheHeader) {
  const auto commas = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  for (const TrialResult& trial : Found().trials) {
    EXPECT_EQ(commas(CsvLine(trial)), commas(CsvHeader())) << CsvLine(trial);
  }
}

TEST(Words, Trial_SaysWhatItDidAndWhatItTook) {
  EXPECT_EQ(TrialLine(Trial(4, 8123.4)),
            "micro-batch 4: 8123 samples/s, 1.0 MiB (25 % of the memory)");
  EXPECT_EQ(TrialLine(Found().trials.back()), "micro-batch 8: out of memory");
}

TEST(Words, Checks_GiveTheNumberAndWhatItMeans) {
  Findings findings = Found();
  EXPECT_THAT(LossLine(findings), IsEmpty());
  EXPECT_THAT(ScalingLine(findings), IsEmpty());
  findings.half_micro = Trial(1, 90);
  findings.loss_difference = 0.001;
  EXPECT_EQ(LossLine(findings), "loss: 2 x 1 and 1 x 2 differ by 0.10 %: the same curve");
  findings.loss_difference = 0.2;
  EXPECT_THAT(LossLine(findings), HasSubstr("differ by 20 %, more than 5.0 %"));
  findings.scaled = Trial(2, 1000);
  findings.scaled->request.nproc = 8;
  findings.scaling = 5.9;
  EXPECT_THAT(ScalingLine(findings), AllOf(HasSubstr("8 workers do 5.9 times"), HasSubstr("(74 %)"),
                                           HasSubstr("communication-bound")));
  findings.scaling = 7.2;
  EXPECT_THAT(ScalingLine(findings), Not(HasSubstr("communication-bound")));
}

TEST(Picture, Script_MarksTheKneeAndStaysSmall) {
  TuneConfig config = Config();
  config.program = {"it's.py"};
  const std::string script = GnuplotScript(config, Found());
  EXPECT_THAT(script, AllOf(HasSubstr("knee: 2"), HasSubstr("it''s.py"), HasSubstr("tune.svg"),
                            HasSubstr("tune.png")));
  constexpr std::size_t kSmall = 20'000;
  EXPECT_LT(script.size(), kSmall);
}

}  // namespace
}  // namespace ddl::tune
