// The file of filtered lines, and the prefixes of lines.
#include "launcher/logs/filtered_lines.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/logs/prefix_template.h"

namespace ddl {
namespace {

using ::testing::HasSubstr;

TEST(FilteredLines, LinesInPieces_MatchingOnesWhole) {
  FilteredLines lines({"loss", "a,b"}, "[d0]:");
  std::string out;
  lines.Append("lo", out);
  lines.Append("ss 1\nnothing\nx a,b", out);
  EXPECT_EQ(out, "[d0]:loss 1\n");
  lines.Append(" y\nlos\ns\n", out);
  EXPECT_EQ(out, "[d0]:loss 1\n[d0]:x a,b y\n");
}

TEST(FilteredLines, LastLineWithoutNewline_IsJudgedAtTheEnd) {
  FilteredLines lines({"loss"}, "");
  std::string out;
  lines.Append("final loss", out);
  EXPECT_EQ(out, "");
  lines.Finish(out);
  lines.Finish(out);
  EXPECT_EQ(out, "final loss\n");
}

TEST(FilteredLines, LineLongerThanTheBound_FollowsFromTheFirstPartThatMatches) {
  FilteredLines lines({"needle"}, ">");
  const std::string hay(FilteredLines::kMaxLineBytes, 'x');
  std::string out;
  for (const std::string& bytes : {hay, hay, "needle" + hay, std::string("end\nshort\n")}) {
    lines.Append(bytes, out);
  }
  ASSERT_EQ(out.size(), 1 + 6 + hay.size() + 4);
  EXPECT_EQ(out.substr(0, 9), ">needlexx");
  EXPECT_EQ(out.substr(out.size() - 5), "xend\n");
}

TEST(FillPrefixTemplate, BothFormsAndDollars_OncePassedOver) {
  const PrefixValues values{"${rank}", 1, 5, "node-a"};
  EXPECT_EQ(FillPrefixTemplate("[${role_name} $local_rank/${rank}@${hostname}]$$ ", values),
            "[${rank} 1/5@node-a]$ ");
  EXPECT_EQ(FillPrefixTemplate("100$ ${", values), "100$ ${");
}

TEST(CheckPrefixTemplate, UnknownNameOrTwoLines_InvalidArgument) {
  EXPECT_TRUE(CheckPrefixTemplate("${role_name}$rank$ 5$$x").ok());
  EXPECT_THAT(std::string(CheckPrefixTemplate("${rank} ${host}").message()), HasSubstr("${host}"));
  EXPECT_FALSE(CheckPrefixTemplate("a\nb").ok());
}

}  // namespace
}  // namespace ddl
