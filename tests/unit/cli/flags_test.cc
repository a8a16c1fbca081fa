// The table of flags, and the help text made from it.
#include "launcher/cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/help.h"
#include "launcher/cli/manual.h"

namespace ddl::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Flags, Table_IsInTheOrderOfTheEnum) {
  for (std::size_t i = 0; i < AllFlags().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(AllFlags()[i].id), i) << AllFlags()[i].name;
  }
}

TEST(Flags, Table_NamesAreUniqueAndInDashForm) {
  std::set<std::string_view> names;
  for (const FlagSpec& flag : AllFlags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_EQ(flag.name.find('_'), std::string_view::npos) << flag.name;
  }
}

TEST(Flags, FindFlag_EitherSpelling_IsTheSameFlag) {
  ASSERT_NE(FindFlag("nproc-per-node", Command::kLaunch), nullptr);
  EXPECT_EQ(FindFlag("nproc_per_node", Command::kLaunch),
            FindFlag("nproc-per-node", Command::kLaunch));
  EXPECT_EQ(FindFlag("nproc", Command::kLaunch), nullptr);
}

TEST(Flags, PetVariable_IsUpperCaseWithUnderscores) {
  EXPECT_EQ(PetVariable(Flag(FlagId::kNprocPerNode)), "PET_NPROC_PER_NODE");
}

TEST(Flags, FlagOfAnotherCommand_IsNotFound) {
  EXPECT_EQ(FindFlag("listen", Command::kLaunch), nullptr);
  EXPECT_NE(FindFlag("listen", Command::kCoordinator), nullptr);
  EXPECT_EQ(FindFlag("nnodes", Command::kCoordinator), nullptr);
  EXPECT_EQ(FindShortFlag('m', Command::kCoordinator), nullptr);
  EXPECT_EQ(FindFlag("rdzv-conf", Command::kLaunch), FindFlag("rdzv-conf", Command::kCoordinator));
}

TEST(Flags, ChoicesOf_AreTheWords) {
  EXPECT_THAT(ChoicesOf(Flag(FlagId::kLrScaling)), ElementsAre("none", "linear", "sqrt"));
  EXPECT_THAT(ChoicesOf(Flag(FlagId::kRdzvId)), IsEmpty());
  EXPECT_TRUE(Flag(FlagId::kEnv).takes_list());
  EXPECT_FALSE(Flag(FlagId::kLrScaling).takes_list());
}

TEST(Flags, NearestFlags_ASlip_IsFound) {
  EXPECT_THAT(NearestFlags("nproc-per-nod", Command::kLaunch), ElementsAre("nproc-per-node"));
  EXPECT_THAT(NearestFlags("max_restart", Command::kLaunch), ElementsAre("max-restarts"));
  EXPECT_THAT(NearestFlags("rdvz-endpoint", Command::kLaunch), ElementsAre("rdzv-endpoint"));
}

TEST(Flags, NearestFlags_PartOfAName_FindsThoseWithTheFewestWordsMore) {
  EXPECT_THAT(NearestFlags("global-batch", Command::kPlan), ElementsAre("global-batch-size"));
  EXPECT_THAT(NearestFlags("micro_batch", Command::kLaunch), ElementsAre("micro-batch-size"));
  EXPECT_THAT(NearestFlags("batch-size", Command::kLaunch),
              ElementsAre("global-batch-size", "micro-batch-size", "base-batch-size"));
  EXPECT_THAT(NearestFlags("warmup", Command::kLaunch),
              ElementsAre("warmup-steps", "warmup-ratio", "warmup-epochs"));
  EXPECT_THAT(NearestFlags("world-size", Command::kPlan), ElementsAre("world"));
}

TEST(Flags, NearestFlags_NameElsewhere_IsTranslatedWhereThatFlagIs) {
  EXPECT_THAT(NearestFlags("np", Command::kLaunch), ElementsAre("nproc-per-node"));
  EXPECT_THAT(NearestFlags("num_processes", Command::kLaunch), ElementsAre("nproc-per-node"));
  EXPECT_THAT(NearestFlags("machine-rank", Command::kLaunch), ElementsAre("node-rank"));
  EXPECT_THAT(NearestFlags("lr", Command::kPlan), ElementsAre("base-lr"));
  EXPECT_THAT(NearestFlags("hostfile", Command::kPlan), IsEmpty());
}

TEST(Flags, NearestFlags_AnotherWord_FindsNone) {
  EXPECT_THAT(NearestFlags("learning-rate-decay", Command::kLaunch), IsEmpty());
  EXPECT_THAT(NearestFlags("seed", Command::kLaunch), IsEmpty());
}

TEST(Help, Texts_NameTheFlagsOfTheirCommandAndFitAScreenAndAHalf) {
  for (const Command command :
       {Command::kLaunch, Command::kCoordinator, Command::kPlan, Command::kTune}) {
    const std::string text = HelpText(command);
    for (const FlagSpec& flag : AllFlags()) {
      if (flag.BelongsTo(command)) {
        EXPECT_THAT(text, HasSubstr("--" + std::string(flag.name))) << flag.name;
      }
    }
    constexpr std::ptrdiff_t kMaxLines = 80;
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMaxLines);
  }
  EXPECT_THAT(HelpText(Command::kLaunch), HasSubstr("ddlaunch coordinator --listen"));
}

TEST(Help, Usage_IsShortAndShowsHowItIsDone) {
  const std::string text = UsageText();
  constexpr std::ptrdiff_t kMaxLines = 10;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMaxLines);
  EXPECT_THAT(text, HasSubstr("no program given"));
  EXPECT_THAT(text, HasSubstr("ddlaunch --nproc_per_node=4 train_bin"));
}

TEST(Manual, Page_HasEveryFlagWithItsDefaultAndVariable) {
  const std::string page = ManualPage();
  for (const FlagSpec& flag : AllFlags()) {
    const std::string name =
        absl::StrReplaceAll(absl::StrCat("\\fB--", std::string(flag.name), "\\fR"), {{"-", "\\-"}});
    EXPECT_THAT(page, HasSubstr(name));
    EXPECT_THAT(page, HasSubstr(std::string(flag.other_variable)));
  }
  for (const FlagGroup group : {FlagGroup::kJob, FlagGroup::kPlan, FlagGroup::kRefused}) {
    EXPECT_THAT(page, HasSubstr(std::string(TitleOf(group)).substr(0, 8)));
  }
}

TEST(Help, Lines_AreAtMost100Wide) {
  constexpr std::size_t kMaxWidth = 100;
  const std::string text = HelpText(Command::kLaunch) + HelpText(Command::kCoordinator) +
                           HelpText(Command::kPlan) + HelpText(Command::kTune);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LE(end - at, kMaxWidth) << text.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace ddl::cli
