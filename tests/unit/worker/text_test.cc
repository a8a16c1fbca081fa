// Cleaning and cutting text.
#include "launcher/failures/text.h"

#include <string>

#include "gtest/gtest.h"

namespace ddl {
namespace {

TEST(CleanText, ValidUtf8_Unchanged) {
  const std::string text = "a \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80\t\n";
  EXPECT_EQ(CleanText(text, 100), text);
}

TEST(CleanText, InvalidBytes_QuestionMarks) {
  EXPECT_EQ(CleanText("a\xFF\xC3", 100), "a??");
  EXPECT_EQ(CleanText("\xC0\x80", 100), "??");               // overlong
  EXPECT_EQ(CleanText("\xED\xA0\x80", 100), "???");          // surrogate
  EXPECT_EQ(CleanText("\xF4\x90\x80\x80", 100), "????");     // beyond U+10FFFF
  EXPECT_EQ(CleanText(std::string("a\0b", 3), 100), "a?b");  // no zero in a C string
}

TEST(CleanText, TooLong_KeepsTheEndAndWholeCharacters) {
  EXPECT_EQ(CleanText("abcdef", 3), "def");
  EXPECT_EQ(CleanText("ab\xE2\x82\xAC"
                      "cd",
                      4),
            "cd");
}

TEST(LastLines, MoreThanAsked_TheLast) {
  EXPECT_EQ(LastLines("a\nb\nc\n", 2), "b\nc");
  EXPECT_EQ(LastLines("a\nb\nc", 2), "b\nc");
  EXPECT_EQ(LastLines("a\n", 5), "a");
  EXPECT_EQ(LastLines("", 5), "");
}

TEST(LastLines, CarriageReturns_WhatIsLeftStanding) {
  EXPECT_EQ(LastLines("1%\r2%\r3%\r\nx\r\n", 5), "3%\nx");
}

TEST(Tail, LongStream_BoundedAndTheEnd) {
  Tail tail(8);
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const std::string piece = std::to_string(i) + ",";
    tail.Append(piece, Instant{});
    all += piece;
    ASSERT_LE(tail.text().size(), 16U);
  }
  EXPECT_EQ(all.substr(all.size() - 8), tail.text().substr(tail.text().size() - 8));
  tail.Append(std::string(100, 'x'), Instant{} + std::chrono::seconds(1));
  EXPECT_EQ(tail.last_at(), Instant{} + std::chrono::seconds(1));
  EXPECT_EQ(tail.text(), "xxxxxxxx");
}

}  // namespace
}  // namespace ddl
