// Where the flags end, how they are spelt, and where their values come from.
// Numbers in comments are the field cases these tests answer to.
#include "launcher/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddl::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Words = std::vector<std::string>;

Arguments Scan(const Words& args, const Environment& environment = {}) {
  auto arguments = ScanArguments(args, environment, Command::kLaunch);
  EXPECT_TRUE(arguments.ok()) << arguments.status();
  return arguments.ok() ? *std::move(arguments) : Arguments{};
}

std::string ScanError(const Words& args) {
  const absl::Status status = ScanArguments(args, {}, Command::kLaunch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string TextOf(const Arguments& arguments, FlagId id) {
  const RawValue* const raw = arguments.Find(id);
  return raw == nullptr ? "(none)" : raw->text;
}

TEST(Arguments, LauncherLikeFlagsAfterTheScript_BelongToTheScript) {  // 1, 4
  const Words own = {"--r=16", "--log=x", "--nproc-per-node=7", "-m", "-h"};
  Words args = {"args.py"};
  args.insert(args.end(), own.begin(), own.end());
  const Arguments arguments = Scan(args);
  EXPECT_EQ(arguments.program, "args.py");
  EXPECT_EQ(arguments.program_args, own);
  EXPECT_THAT(arguments.values, IsEmpty());
}

TEST(Arguments, DashDashBeforeTheProgram_EndsTheFlagsAndOnlyThat) {  // 3
  const Arguments arguments = Scan({"--no-python", "--", "./show", "-t", "3", "--", "-r", "1"});
  EXPECT_EQ(arguments.program, "./show");
  EXPECT_THAT(arguments.program_args, ElementsAre("-t", "3", "--", "-r", "1"));
  EXPECT_EQ(TextOf(arguments, FlagId::kNoPython), "1");
}

TEST(Arguments, ProgramThatLooksLikeAFlagAfterDashDash_IsTheProgram) {
  EXPECT_EQ(Scan({"--", "--odd"}).program, "--odd");
}

TEST(Arguments, ArgumentsWithSpacesAndNothing_AreLeftAlone) {
  EXPECT_THAT(Scan({"./s.sh", "a", "b c", "", "--x="}).program_args,
              ElementsAre("a", "b c", "", "--x="));
}

TEST(Arguments, EitherSpellingEitherValueForm_IsTheSame) {
  for (const Words& args :
       {Words{"--nproc-per-node=4", "p"}, Words{"--nproc_per_node=4", "p"},
        Words{"--nproc-per-node", "4", "p"}, Words{"--nproc_per_node", "4", "p"}}) {
    const Arguments arguments = Scan(args);
    EXPECT_EQ(TextOf(arguments, FlagId::kNprocPerNode), "4");
    EXPECT_EQ(arguments.Find(FlagId::kNprocPerNode)->origin, "--nproc-per-node");
    EXPECT_EQ(arguments.program, "p");
  }
}

TEST(Arguments, EmptyValue_IsKeptAndTakesNothingElse) {
  const Arguments arguments = Scan({"--role=", "--log-dir", "", "p", "q"});
  EXPECT_EQ(TextOf(arguments, FlagId::kRole), "");
  EXPECT_EQ(TextOf(arguments, FlagId::kLogDir), "");
  EXPECT_EQ(arguments.program, "p");
  EXPECT_THAT(arguments.program_args, ElementsAre("q"));
}

TEST(Arguments, BracketsAndDashesInValues_AreKept) {
  const Arguments arguments = Scan(
      {"--rdzv-endpoint=[::1]:7", "--nnodes", "-1", "--log-line-prefix-template=--${rank}", "p"});
  EXPECT_EQ(TextOf(arguments, FlagId::kRdzvEndpoint), "[::1]:7");
  EXPECT_EQ(TextOf(arguments, FlagId::kNnodes), "-1");
  EXPECT_EQ(TextOf(arguments, FlagId::kLogLinePrefixTemplate), "--${rank}");
}

TEST(Arguments, GivenTwice_TheLastWins) {
  EXPECT_EQ(TextOf(Scan({"--nnodes=1", "--nnodes=2", "p"}), FlagId::kNnodes), "2");
}

TEST(Arguments, ShortFlags_MayBeGroupedAndCarryAValue) {
  for (const Words& args : {Words{"-mr3", "p"}, Words{"-m", "-r", "3", "p"},
                            Words{"-m", "-r=3", "p"}, Words{"-mr", "3", "p"}}) {
    const Arguments arguments = Scan(args);
    EXPECT_EQ(TextOf(arguments, FlagId::kModule), "1");
    EXPECT_EQ(TextOf(arguments, FlagId::kRedirects), "3");
    EXPECT_EQ(arguments.program, "p");
  }
}

TEST(Arguments, UniqueBeginning_IsCompleted) {
  const Arguments arguments = Scan({"--nproc=4", "--redirect", "3", "--stand", "p"});
  EXPECT_EQ(TextOf(arguments, FlagId::kNprocPerNode), "4");
  EXPECT_EQ(TextOf(arguments, FlagId::kRedirects), "3");
  EXPECT_EQ(TextOf(arguments, FlagId::kStandalone), "1");
}

TEST(Arguments, AmbiguousBeginning_IsRefusedWithTheCandidates) {
  EXPECT_THAT(ScanError({"--log=x", "p"}),
              AllOf(HasSubstr("--log is ambiguous"), HasSubstr("--log-dir"),
                    HasSubstr("--log-line-prefix-template"), HasSubstr("--logs-specs")));
}

TEST(Arguments, BeginningThatOnlyOneOfTorchrunsFlagsHas_IsThatFlag) {
  EXPECT_EQ(TextOf(Scan({"--max=3", "p"}), FlagId::kMaxRestarts), "3");  // not --max-micro-...
  EXPECT_EQ(TextOf(Scan({"--max-m=3", "p"}), FlagId::kMaxMicroBatchSize), "3");
  EXPECT_THAT(ScanError({"--v", "p"}), HasSubstr("--v is ambiguous"));
}

TEST(Arguments, ValueThatLooksLikeTheNextFlag_IsAskedFor) {
  EXPECT_THAT(ScanError({"--role", "--nnodes=1", "p"}),
              AllOf(HasSubstr("--role needs a value (NAME)"), HasSubstr("--role=--nnodes=1")));
  EXPECT_THAT(ScanError({"-r", "-m", "p"}), HasSubstr("-r needs a value"));
  EXPECT_THAT(ScanError({"--role", "--", "p"}), HasSubstr("--role needs a value"));
  for (const char* const value : {"-1", "-.5", "-1.5", "-", "-a b", ""}) {
    EXPECT_EQ(TextOf(Scan({"--role", value, "p"}), FlagId::kRole), value);
  }
  for (const char* const value : {"-x", "-1.", "-.", "--", "-1e3"}) {
    ScanError({"--role", value, "p"});
    EXPECT_EQ(TextOf(Scan({absl::StrCat("--role=", value), "p"}), FlagId::kRole), value);
  }
}

TEST(Arguments, UnknownFlag_IsRefusedWithTheNearest) {
  EXPECT_THAT(ScanError({"--nproc-per-nodes=4", "p"}),
              AllOf(HasSubstr("--nproc-per-nodes: no such flag"),
                    HasSubstr("did you mean --nproc-per-node?")));
  EXPECT_THAT(ScanError({"-x", "p"}), HasSubstr("-x: no such flag"));
  EXPECT_THAT(ScanError({"-mx", "p"}), HasSubstr("-mx: no such flag"));
  EXPECT_THAT(ScanError({"--epochs=3", "p"}), Not(HasSubstr("did you mean")));
}

TEST(Arguments, MissingValueOrUnwantedOne_IsRefused) {
  EXPECT_THAT(ScanError({"--nnodes"}), HasSubstr("--nnodes needs a value"));
  EXPECT_THAT(ScanError({"-r"}), HasSubstr("-r needs a value"));
  EXPECT_THAT(ScanError({"--standalone=1", "p"}), HasSubstr("takes no value"));
}

TEST(Arguments, Help_MakesTheRestIrrelevant) {
  EXPECT_NE(Scan({"--help", "--bogus"}).Find(FlagId::kHelp), nullptr);
  EXPECT_NE(Scan({"-h", "--nnodes"}).Find(FlagId::kHelp), nullptr);
  EXPECT_NE(Scan({"--version", "-x"}).Find(FlagId::kVersion), nullptr);
}

TEST(Arguments, PetVariable_IsTheDefaultAndTheCommandLineWins) {  // 8
  const Environment environment = {{"PET_NPROC_PER_NODE", "3"}};
  const Arguments from_variable = Scan({"p"}, environment);
  EXPECT_EQ(TextOf(from_variable, FlagId::kNprocPerNode), "3");
  EXPECT_EQ(from_variable.Find(FlagId::kNprocPerNode)->origin, "PET_NPROC_PER_NODE");
  EXPECT_EQ(TextOf(Scan({"--nproc-per-node=2", "p"}, environment), FlagId::kNprocPerNode), "2");
}

TEST(Arguments, OtherVariable_RanksBelowThePetOne) {
  Environment environment = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}};
  EXPECT_EQ(TextOf(Scan({"p"}, environment), FlagId::kShutdownTimeout), "5");
  environment["PET_SHUTDOWN_TIMEOUT"] = "6";
  EXPECT_EQ(TextOf(Scan({"p"}, environment), FlagId::kShutdownTimeout), "6");
  EXPECT_EQ(TextOf(Scan({"--shutdown-timeout=7", "p"}, environment), FlagId::kShutdownTimeout),
            "7");
}

TEST(Arguments, EmptyVariable_CountsAsUnset) {
  EXPECT_EQ(Scan({"p"}, {{"PET_NNODES", ""}}).Find(FlagId::kNnodes), nullptr);
}

TEST(Arguments, HelpVariable_IsNotRead) {
  EXPECT_EQ(Scan({"p"}, {{"PET_HELP", "1"}}).Find(FlagId::kHelp), nullptr);
  EXPECT_EQ(Scan({"p"}, {{"PET_PRINT_COMPLETION", "zsh"}}).Find(FlagId::kPrintCompletion), nullptr);
}

TEST(Arguments, NoProgram_IsNoProgram) {
  EXPECT_FALSE(Scan({"--nnodes=1"}).program.has_value());
  EXPECT_FALSE(Scan({"--"}).program.has_value());
  EXPECT_FALSE(Scan({}).program.has_value());
}

TEST(UnknownPetVariables, Slips_AreFound) {
  EXPECT_THAT(UnknownPetVariables({{"PET_NPROC", "1"}, {"PET_NNODES", "1"}, {"PETER", "1"}}),
              ElementsAre("PET_NPROC"));
}

}  // namespace
}  // namespace ddl::cli
