// `ddlaunch tune`: what goes to its trials, to its proposal, and what is its own.
#include "launcher/cli/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

TEST_F(TuneTest, FlagsOfALaunch_HoldForTrialsButForNodesWorkersAndLogs) {
  around_.environment["PET_ROLE"] = "tuned";
  const TuneConfig config =
      Tune({"--nnodes=2", "--nproc-per-node=3", "--rdzv-backend=c10d", "--log-dir=x", "-r", "3",
            "--no-python", "--max-restarts=3", "--base-lr=0.1", "--shutdown-timeout=7", "-q"})
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
            "--batch-policy=exact", "--micro-batch-size=3", "--world=1..3,8"});
  EXPECT_EQ(command.config.first_micro_batch_size, 4);
  EXPECT_EQ(command.config.max_micro_batch_size, 96);
  EXPECT_THAT(command.config.plan_flags,
              UnorderedElementsAre(Pair("global-batch-size", "96"), Pair("batch-policy", "exact")));
  EXPECT_THAT(command.config.worlds, ElementsAre(1, 2, 3, 8));
  EXPECT_THAT(TextsOf(command.notices), Contains(HasSubstr("--micro-batch-size=3 is not used")));
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
  const TuneConfig config = Tune({"--base-lr=0.5", "--base-batch-size=32", "--lr-scaling=linear",
                                  "--adam-beta2=0.99", "--scale-adam", "--min-micro-batch-size=8"})
                                .config;
  EXPECT_THAT(config.launch_flags, UnorderedElementsAre("--base-lr=0.125", "--adam-beta2=0.99"));
  EXPECT_EQ(config.plan.base_lr, 0.5);
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
