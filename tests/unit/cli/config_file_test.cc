// --config: what a YAML file may say, what it may not, and who wins.
#include "launcher/cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::map<FlagId, RawValue> Values(std::string_view text, Command command = Command::kLaunch) {
  auto values = ParseConfig(text, "train.yaml", command);
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? *std::move(values) : std::map<FlagId, RawValue>();
}

std::string Error(std::string_view text) {
  const absl::Status status = ParseConfig(text, "train.yaml", Command::kLaunch).status();
  EXPECT_EQ(ExitCodeFor(status), 2) << text;
  return std::string(status.message());
}

TEST(Config, Names_InEitherSpelling_GiveTheirFlagsWithTheirLines) {
  const auto values = Values("# found by hand\n\nglobal-batch-size: 1024\nlr_scaling: 'linear'\n");
  ASSERT_EQ(values.size(), 2);
  EXPECT_THAT(values.at(FlagId::kGlobalBatchSize).text, Eq("1024"));
  EXPECT_THAT(values.at(FlagId::kGlobalBatchSize).origin, Eq("train.yaml:3: global-batch-size"));
  EXPECT_THAT(values.at(FlagId::kLrScaling).text, Eq("linear"));
}

TEST(Config, Lists_InAnyForm_AreListsOfTheFlag) {
  EXPECT_THAT(Values("env: [torch, mpi]").at(FlagId::kEnv).text, Eq("torch,mpi"));
  EXPECT_THAT(Values("env:\n  - torch\n  - jax\n").at(FlagId::kEnv).text, Eq("torch,jax"));
  EXPECT_THAT(Values("env: torch,jax").at(FlagId::kEnv).text, Eq("torch,jax"));
  EXPECT_THAT(Values("env: []").at(FlagId::kEnv).text, IsEmpty());
  // A comma in a text is the text's own.
  EXPECT_THAT(
      Values("duplicate-stdout-filters: ['a,b', c]").at(FlagId::kDuplicateStdoutFilters).text,
      Eq("a,,b,c"));
}

TEST(Config, NothingInIt_IsNothing) {
  for (const char* const text : {"", "\n\n", "# only a remark\n", "---\n", "{}", "---\n...\n"}) {
    EXPECT_THAT(Values(text), IsEmpty()) << text;
  }
}

TEST(Config, FlagOfAnotherCommand_IsKnownAndLeftAlone) {
  const auto values = Values("nproc-per-node: 4\nglobal-batch-size: 64\n", Command::kPlan);
  ASSERT_EQ(values.size(), 1);
  EXPECT_THAT(values.at(FlagId::kGlobalBatchSize).text, Eq("64"));
}

TEST(Config, UnknownName_IsRefusedWithItsPlaceAndTheNearest) {
  EXPECT_THAT(Error("nnodes: 1\nglobal_bach_size: 3\n"),
              Eq("train.yaml:2:1: global_bach_size: no such flag; did you mean "
                 "global-batch-size?"));
  EXPECT_THAT(Error("np: 4"), HasSubstr("did you mean nproc-per-node?"));
  EXPECT_THAT(Error("nproc: 4"), HasSubstr("did you mean nproc-per-node?"));
  EXPECT_THAT(Error("global-batch: 4"), HasSubstr("did you mean global-batch-size?"));
  EXPECT_THAT(Error("micro_batch: 4"), HasSubstr("did you mean micro-batch-size?"));
  EXPECT_THAT(Error("lr: 0.1"), HasSubstr("did you mean base-lr?"));
  EXPECT_THAT(Error("world-size: 4"), HasSubstr("did you mean world?"));
  EXPECT_THAT(Error("warmup: 4"),
              HasSubstr("did you mean warmup-steps, warmup-ratio or warmup-epochs?"));
  EXPECT_THAT(Error("batch-size: 4"),
              HasSubstr("did you mean global-batch-size, micro-batch-size or base-batch-size?"));
  EXPECT_THAT(Error("seed: 4"), Eq("train.yaml:1:1: seed: no such flag"));
  EXPECT_THAT(Error("? |\n  a\n  b\n: 1"), Not(HasSubstr("\n")));
}

TEST(Config, WhatIsNotForFiles_IsRefusedByName) {
  EXPECT_THAT(Error("config: other.yaml"), HasSubstr("only for the command line"));
  EXPECT_THAT(Error("help: true"), HasSubstr("only for the command line"));
  EXPECT_THAT(Error("print-completion: bash"), HasSubstr("only for the command line"));
  EXPECT_THAT(Error("listen: ':29400'"), HasSubstr("only for ddlaunch coordinator"));
}

TEST(Config, NameTwice_IsRefusedAlsoInTheOtherSpelling) {
  EXPECT_THAT(Error("nproc-per-node: 1\nnnodes: 1\nnproc_per_node: 2\n"),
              Eq("train.yaml:3:1: nproc_per_node is given twice, first in line 1"));
}

TEST(Config, WrongForm_IsRefusedWithItsPlace) {
  EXPECT_THAT(Error("just words"), StartsWith("train.yaml:1:1: flags are expected here"));
  EXPECT_THAT(Error("- a\n- b"), StartsWith("train.yaml:1:1: a list cannot stand here"));
  EXPECT_THAT(Error("nnodes:\n  min: 1\n"), StartsWith("train.yaml:2:3: nnodes takes one value"));
  EXPECT_THAT(Error("nnodes: [1, 2]"), StartsWith("train.yaml:1:9: nnodes takes one value"));
  EXPECT_THAT(Error("env: [torch, [jax]]"), HasSubstr("env takes no list within a list"));
  EXPECT_THAT(Error("nnodes:\nrole: a\n"), HasSubstr("nnodes has no value"));
  EXPECT_THAT(Error("event-log-handler: null"), HasSubstr("the word null"));
  EXPECT_THAT(Error("[a]: 1"), HasSubstr("a list cannot stand here"));
  EXPECT_THAT(Error("nnodes: 1\n---\nnnodes: 2\n"),
              StartsWith("train.yaml:2:1: a second document"));
  EXPECT_THAT(Error("role: \"a\\0b\""), HasSubstr("NUL"));
}

TEST(Config, AnchorsAliasesAndTags_AreRefused) {
  EXPECT_THAT(Error("nnodes: &n 1\nnproc-per-node: *n\n"), HasSubstr("anchors (&name)"));
  EXPECT_THAT(Error("nnodes: *n"), HasSubstr("this is no YAML"));
  EXPECT_THAT(Error("nnodes: !!int 1"), HasSubstr("tags ("));
  EXPECT_THAT(Error("<<: {nnodes: 1}"), HasSubstr("<<: no such flag"));
}

TEST(Config, QuoteThatIsNotClosed_IsRefusedWithItsPlace) {
  for (const std::string quote : {"\"", "'"}) {
    for (const std::string end : {"", "\n", "\n\n", "\r\n"}) {
      const auto values = ParseConfig("role: " + quote + "abc\nmicro-batch-size: 4" + end, "c.yaml",
                                      Command::kLaunch);
      EXPECT_THAT(std::string(values.status().message()), HasSubstr("this is no YAML")) << quote;
    }
  }
}

TEST(Config, NoYaml_IsRefusedWithItsPlace) {
  EXPECT_THAT(Error("nnodes: 'open"), StartsWith("train.yaml:1:"));
  EXPECT_THAT(Error("nnodes: \"\\q\""), HasSubstr("this is no YAML"));
  EXPECT_THAT(Error("a: b: c"), StartsWith("train.yaml:1:"));
  EXPECT_THAT(Error(std::string(100'000, '[')), StartsWith("train.yaml:1:1"));
  EXPECT_THAT(Error("nnodes: " + std::string(100'000, '[')), StartsWith("train.yaml:1:"));
}

class ConfigFile : public CliTest {};

TEST_F(ConfigFile, Values_AreWonOverByVariableAndCommandLine) {
  const std::string path =
      WriteFile("cwd/train.yaml", "max-restarts: 3\nrole: file\nshutdown-timeout: 7\n", false);
  around_.environment["PET_ROLE"] = "variable";
  const LaunchConfig config = Launch({"--config", path, "--max-restarts=1"}).config;
  EXPECT_EQ(config.max_restarts, 1);
  EXPECT_EQ(config.role, "variable");
  EXPECT_EQ(config.shutdown_timeout, std::chrono::seconds(7));
}

TEST_F(ConfigFile, BadValue_NamesFileLineAndFlag) {
  const std::string path = WriteFile("cwd/train.yaml", "role: a\nmax-restarts: many\n", false);
  EXPECT_THAT(UsageError({"--config", path}),
              StartsWith(absl::StrCat(path, ":2: max-restarts=many: ")));
}

TEST_F(ConfigFile, Switches_TakeTheWordsForYesAndNo) {
  const std::string path =
      WriteFile("cwd/train.yaml", "worker-store: yes\nverbose: false\nquiet: on\n", false);
  const LaunchConfig config = Launch({"--config", path}).config;
  EXPECT_TRUE(config.worker_store);
  EXPECT_FALSE(config.verbose);
  EXPECT_TRUE(config.quiet);
}

TEST_F(ConfigFile, Variable_NamesTheFileToo) {
  around_.environment["PET_CONFIG"] = WriteFile("cwd/train.yaml", "max-restarts: 3\n", false);
  EXPECT_EQ(Launch({}).config.max_restarts, 3);
  around_.environment["PET_CONFIG"] = "/nonexistent.yaml";
  EXPECT_THAT(UsageError({}), StartsWith("PET_CONFIG=/nonexistent.yaml: cannot be read"));
}

TEST_F(ConfigFile, Unreadable_IsRefusedByName) {
  EXPECT_THAT(UsageError({"--config=none.yaml"}), StartsWith("--config=none.yaml: cannot be read"));
  EXPECT_THAT(UsageError({"--config", dir_}), HasSubstr("this is a directory"));
  EXPECT_THAT(UsageError({"--config=/dev/zero"}), HasSubstr("larger than 1048576 bytes"));
  EXPECT_EQ(Launch({"--config=/dev/null"}).config.max_restarts, 0);
}

TEST_F(ConfigFile, ReadThatFails_IsNotTakenForAnEmptyFile) {
  EXPECT_THAT(UsageError({"--config=/proc/self/mem"}), HasSubstr("cannot be read: Input/output"));
}

TEST_F(ConfigFile, PipeWithoutWriter_IsNeitherWaitedForNorEmpty) {
  const std::string pipe = absl::StrCat(dir_, "/pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(UsageError({"--config", pipe}), HasSubstr("a pipe that nobody has written to"));
}

TEST_F(ConfigFile, Help_DoesNotReadIt) {
  EXPECT_TRUE(Parse({"--config=none.yaml", "--help"}).ok());
}

TEST_F(ConfigFile, Coordinator_TakesNone) {
  EXPECT_THAT(UsageError({"coordinator", "--config=a.yaml"}),
              StartsWith("--config: the nodes of a job give it"));
}

}  // namespace
}  // namespace ddl::cli
