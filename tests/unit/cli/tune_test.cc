// `ddlaunch tune`: what goes to its trials, to its proposal, and what is its own.
#include "launcher/cli/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/cli/help.h"
#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class TuneTest : public CliTest {
 protected:
  TuneCommand Tune(std::vector<std::string> args) const {
    args.insert(args.begin(), "tune");
    args.emplace_back("/bin/true");
    args.emplace_back("--own");
    auto result = Parse(args);
    if (!result.ok() || !std::holds_alternative<TuneCommand>(*result)) {
      ADD_FAILURE() << result.status();
      return {};
    }
    return std::get<TuneCommand>(*std::move(result));
  }
  std::string Error(std::vector<std::string> args) const {
    args.insert(args.begin(), "tune");
    return UsageError(std::move(args));
  }
};

TEST_F(TuneTest, FlagsOfALaunch_HoldForTrialsButForNodesAndWorkers) {
  around_.environment["PET_ROLE"] = "tuned";
  around_.environment["PET_RDZV_BACKEND"] = "c10d";
  around_.environment["PET_LOG_DIR"] = "x";
  const TuneConfig config = Tune({"--nnodes=2", "--nproc-per-node=3", "--standalone", "--no-python",
                                  "--base-lr=0.1", "--shutdown-timeout=7", "-q"})
                                .config;
  EXPECT_THAT(config.launch_flags, UnorderedElementsAre("--no-python", "--role=tuned",
                                                        "--base-lr=0.1", "--shutdown-timeout=7"));
  EXPECT_THAT(config.program, ElementsAre("/bin/true", "--own"));
  EXPECT_EQ(config.nproc, 3);
  EXPECT_THAT(config.worlds, ElementsAre(1, 6));
  EXPECT_EQ(config.shutdown_timeout, std::chrono::seconds(7));
}

TEST_F(TuneTest, Batch_BoundsTheSearchAndIsProposed) {
  const TuneCommand command =
      Tune({"--global-batch-size=96", "--max-micro-batch-size=128", "--min-micro-batch-size=4",
            "--batch-policy=exact", "--world=1..3,8"});
  EXPECT_EQ(command.config.first_micro_batch_size, 4);
  EXPECT_EQ(command.config.max_micro_batch_size, 96);
  EXPECT_EQ(command.config.bounded_by, "--global-batch-size=96");
  EXPECT_THAT(command.config.plan_flags,
              UnorderedElementsAre(Pair("global-batch-size", "96"), Pair("batch-policy", "exact"),
                                   Pair("min-micro-batch-size", "4")));
  EXPECT_THAT(command.config.worlds, ElementsAre(1, 2, 3, 8));
}

TEST_F(TuneTest, OwnFlags_AreTaken) {
  const TuneConfig config =
      Tune({"--tune-dir=d", "--trial-steps=7", "--trial-seconds=1.5", "--trial-timeout=2",
            "--memory-limit=0.5", "--check-loss", "--oom-exit-codes=3,4"})
          .config;
  EXPECT_EQ(config.directory, "d");
  EXPECT_EQ(config.trial_steps, 7);
  EXPECT_EQ(config.trial_time, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.trial_timeout, std::chrono::seconds(2));
  EXPECT_EQ(config.memory_limit, 0.5);
  EXPECT_TRUE(config.check_loss);
  EXPECT_THAT(config.oom_exit_codes, ElementsAre(3, 4));
}

TEST_F(TuneTest, Rate_IsThatOfTheSmallestMicroBatchInEveryTrial) {
  const TuneConfig config = Tune({"--base-lr=0.5", "--base-batch-size=32", "--lr-scaling=sqrt",
                                  "--adam-beta2=0.99", "--scale-adam", "--min-micro-batch-size=8"})
                                .config;
  EXPECT_THAT(config.launch_flags, UnorderedElementsAre("--base-lr=0.25", "--adam-beta2=0.99"));
  EXPECT_EQ(config.plan.base_lr, 0.5);
}

TEST_F(TuneTest, WarmupAndDecay_AreOfTheProposalAndNotOfTrials) {
  // At a micro-batch of 1 the rate is below the start of the warm-up.
  const TuneConfig config = Tune({"--base-lr=0.1", "--base-batch-size=32", "--lr-scaling=linear",
                                  "--warmup-start-lr=0.01", "--warmup-steps=10",
                                  "--lr-decay=cosine", "--total-samples=1000"})
                                .config;
  EXPECT_THAT(config.launch_flags,
              UnorderedElementsAre("--base-lr=0.003125", "--total-samples=1000"));
  EXPECT_THAT(config.plan_flags, Contains(Pair("warmup-start-lr", "0.01")));
  EXPECT_THAT(config.plan_flags, Contains(Pair("lr-decay", "cosine")));
}

TEST_F(TuneTest, PlanThatNoMicroBatchHas_IsRefusedBeforeTheFirstTrial) {
  EXPECT_THAT(Error({"--warmup-steps=3", "--warmup-ratio=0.1", "--total-samples=9"}),
              HasSubstr("give one of them"));
  EXPECT_THAT(Error({"--lr-scaling=linear"}), HasSubstr("--base-lr"));
  EXPECT_THAT(Error({"--max-micro-batch-size=2", "--base-lr=0.1", "--base-batch-size=32",
                     "--lr-scaling=linear", "--warmup-start-lr=0.1", "--world=1"}),
              HasSubstr("--warmup-start-lr=0.1"));
}

TEST_F(TuneTest, FlagsWithoutMeaningHere_AreRefusedByNameAndNotInTheHelp) {
  for (const std::string flag :
       {"--rdzv-endpoint=h", "--rdzv-conf=timeout=3", "--rdzv-id=a", "--master-addr=h",
        "--node-rank=1", "--local-addr=::1", "--max-restarts=3", "--signals-to-handle=INT",
        "--log-dir=x", "--tee=3", "--redirects=3", "--event-log-handler=null",
        "--monitor-interval=1", "--logs-specs=a", "--print-completion=bash"}) {
    const std::string name = flag.substr(0, flag.find('='));
    EXPECT_THAT(Error({flag}), StartsWith(name + ": it has no meaning in ddlaunch tune"));
    EXPECT_THAT(HelpText(Command::kTune), Not(HasSubstr(name + "="))) << name;
    EXPECT_THAT(HelpText(Command::kTune), Not(HasSubstr(" " + name + " "))) << name;
  }
  EXPECT_THAT(Error({"-r", "3"}), StartsWith("-r: it has no meaning"));
  EXPECT_THAT(Error({"-qt", "3"}), StartsWith("-qt: it has no meaning"));
  EXPECT_THAT(Error({"--micro-batch-size=3"}),
              AllOf(StartsWith("--micro-batch-size: ddlaunch tune chooses it"),
                    HasSubstr("--max-micro-batch-size")));
  EXPECT_THAT(Error({"--grad-accum-steps=3"}), HasSubstr("ddlaunch tune chooses it"));
}

TEST_F(TuneTest, Nonsense_IsRefusedByFlag) {
  EXPECT_THAT(Error({"--memory-limit=0"}), StartsWith("--memory-limit=0"));
  EXPECT_THAT(Error({"--memory-limit=1.1"}), HasSubstr("at most 1"));
  EXPECT_THAT(Error({"--trial-steps=0"}), StartsWith("--trial-steps=0"));
  EXPECT_THAT(Error({"--tune-dir="}), HasSubstr("must be a directory"));
  EXPECT_THAT(Error({"--world=0"}), StartsWith("--world=0: must be world sizes"));
  EXPECT_THAT(Error({"--world=1..9999999"}), HasSubstr("more than 4096 worlds"));
  EXPECT_THAT(Error({"--world="}), StartsWith("--world="));
  EXPECT_THAT(Error({"--check-scaling"}), HasSubstr("more than 1"));
  EXPECT_THAT(Error({"--listen=:1"}), HasSubstr("only for ddlaunch coordinator"));
  EXPECT_THAT(Error({"--tune-dri=x"}), HasSubstr("did you mean --tune-dir?"));
}

}  // namespace
}  // namespace ddl::cli
