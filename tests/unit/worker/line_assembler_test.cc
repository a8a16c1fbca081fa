// What of a stream's bytes stands on the console, with time passed in.
#include "launcher/logs/line_assembler.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/mman.h>

#include <chrono>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/group_harness.h"

namespace ddl {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::size_t kBuffer = std::size_t{1} << 20U;

// Console output to a file in memory, and two streams on it.
class LineAssemblerTest : public ::testing::Test {
 protected:
  std::string Shown() {
    EXPECT_TRUE(console_.writer().WaitUntilWritten(MonotonicNow() + test::kPatience));
    return test::ReadAll(fd_.get());
  }

  UniqueFd fd_{::memfd_create("console", MFD_CLOEXEC)};
  Console console_{fd_.get(), kBuffer, [] {}};
  LineAssembler a_{&console_, {2, "[a]:", false, ""}};
  LineAssembler b_{&console_, {3, "[b]:", false, ""}};
  Instant now_{std::chrono::seconds(100)};
};

TEST_F(LineAssemblerTest, LinesInHalves_ShownWholeWithPrefix) {
  a_.Append("one ", now_);
  b_.Append("eins ", now_);
  a_.Append("two\nthree", now_);
  b_.Append("zwei\n", now_);
  a_.Append("\n\n", now_);
  EXPECT_EQ(Shown(), "[a]:one two\n[b]:eins zwei\n[a]:three\n[a]:\n");
}

TEST_F(LineAssemblerTest, LastLineWithoutNewline_Completed) {
  a_.Append("one\ntwo", now_);
  a_.Finish();
  a_.Finish();
  EXPECT_EQ(Shown(), "[a]:one\n[a]:two\n");
}

TEST_F(LineAssemblerTest, CrLf_OneLineEach) {
  a_.Append("one\r\ntwo\r", now_);
  a_.Append("\nthree\r\n", now_);
  EXPECT_EQ(Shown(), "[a]:one\n[a]:two\n[a]:three\n");
}

TEST_F(LineAssemblerTest, BurstOfProgress_FirstAndLastStateOnly) {
  for (int i = 0; i < 500; ++i) {
    a_.Append("\r", now_);
    a_.Append(std::to_string(i), now_);
    a_.Append("/500", now_);
  }
  a_.Append("\n", now_);
  EXPECT_EQ(Shown(), "[a]:0/500\r[a]:499/500\n");
}

TEST_F(LineAssemblerTest, SlowProgress_EachStateLive) {
  a_.Append("1%\r", now_);
  ASSERT_TRUE(a_.deadline().has_value());
  now_ = *a_.deadline();
  a_.OnTime(now_);
  EXPECT_EQ(Shown(), "[a]:1%\r");
  now_ += milliseconds(1000);
  a_.Append("2%\r", now_);
  now_ = *a_.deadline();
  a_.OnTime(now_);
  EXPECT_EQ(Shown(), "[a]:1%\r[a]:2%\r");
  EXPECT_FALSE(a_.deadline().has_value());
  a_.Append("\n", now_);
  EXPECT_EQ(Shown(), "[a]:1%\r[a]:2%\r[a]:2%\n");
}

TEST_F(LineAssemblerTest, ProgressThatStartsWithTheReturn_ShownAfterASilence) {
  a_.Append("\r7%", now_);
  ASSERT_TRUE(a_.deadline().has_value());
  a_.OnTime(*a_.deadline());
  EXPECT_EQ(Shown(), "[a]:7%\r");
  EXPECT_FALSE(a_.deadline().has_value());
}

TEST_F(LineAssemblerTest, ProgressTooOften_HeldStateShownWhenItIsTime) {
  a_.Append("1%\r2%\r3%\rx", now_);  // the x makes the last '\r' a return
  EXPECT_EQ(Shown(), "[a]:1%\r");
  a_.Append("\r", now_);
  for (int i = 0; i < 3 && a_.deadline().has_value(); ++i) {
    now_ = *a_.deadline();
    a_.OnTime(now_);
  }
  EXPECT_FALSE(a_.deadline().has_value());
  EXPECT_EQ(Shown(), "[a]:1%\r[a]:x\r");
}

TEST_F(LineAssemblerTest, OtherStreamAfterProgress_StartsALineOfItsOwn) {
  a_.Append("50%\r.", now_);
  b_.Append("hello\n", now_);
  EXPECT_EQ(Shown(), "[a]:50%\r\n[b]:hello\n");
}

TEST_F(LineAssemblerTest, LongLineAlone_PrefixOnlyAtTheStart) {
  const std::string line(300'000, 'x');
  for (std::size_t at = 0; at < line.size(); at += 1000) {
    a_.Append(line.substr(at, 1000), now_);
  }
  EXPECT_GE(Shown().size(), line.size() - LineAssembler::kMaxLineBytes);
  a_.Append("\nnext\n", now_);
  EXPECT_EQ(Shown(), "[a]:" + line + "\n[a]:next\n");
}

TEST_F(LineAssemblerTest, LongLineInterrupted_GoesOnMarkedAsContinued) {
  const std::string part(LineAssembler::kMaxLineBytes, 'x');
  a_.Append(part + "yy", now_);
  b_.Append("hello\n", now_);
  a_.Append("\n", now_);
  EXPECT_EQ(Shown(), "[a]:" + part + "\n[b]:hello\n[a]:(continued) yy\n");
}

TEST_F(LineAssemblerTest, LineOfExactlyTheBound_OneLine) {
  const std::string line(LineAssembler::kMaxLineBytes, 'x');
  a_.Append(line + "\n", now_);
  a_.Append(line, now_);
  a_.Append("\n", now_);
  EXPECT_EQ(Shown(), "[a]:" + line + "\n[a]:" + line + "\n");
}

TEST_F(LineAssemblerTest, UnfinishedLineOnAPipe_WaitsForItsEnd) {
  a_.Append("name? ", now_);
  EXPECT_FALSE(a_.deadline().has_value());
  EXPECT_EQ(Shown(), "");
}

TEST_F(LineAssemblerTest, Raw_BytesAsTheyCome) {
  LineAssembler raw(&console_, {4, "", true, ""});
  raw.Append("a\rb", now_);
  EXPECT_EQ(Shown(), "a\rb");
  raw.Append("c\nd", now_);
  raw.Finish();
  EXPECT_EQ(Shown(), "a\rbc\nd");
}

TEST_F(LineAssemblerTest, NoticeInAnOpenLine_OnALineOfItsOwn) {
  LineAssembler raw(&console_, {4, "", true, ""});
  raw.Append("half", now_);
  console_.Notice("hello");
  raw.Append("rest\n", now_);
  EXPECT_EQ(Shown(), "half\nddlaunch: hello\nrest\n");
}

// A pipe that nobody reads, then somebody does.
TEST(LineAssembler, ConsoleTooSlow_DropsWithOneCountedNotice) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  constexpr std::size_t kSmall = 4096;
  auto console = std::make_unique<Console>(write_end.get(), kSmall, [] {});
  LineAssembler lines(console.get(), {2, "[a]:", false, "/logs/stdout.log"});
  const Instant now = MonotonicNow();
  constexpr int kLines = 10'000;
  for (int i = 0; i < kLines; ++i) {
    lines.Append("line " + std::to_string(i) + "\n", now);  // 64 KiB go into the pipe
  }
  // The last line must wait for no reader: Finish takes what it needs.
  lines.Finish();
  ASSERT_EQ(::fcntl(read_end.get(), F_SETFL, O_NONBLOCK), 0);
  // Every line is either shown or counted.
  std::string shown;
  long whole = 0;
  long dropped = 0;
  const Instant deadline = MonotonicNow() + test::kPatience;
  while (whole + dropped < kLines && MonotonicNow() < deadline) {
    std::array<char, 4096> bytes{};
    const ssize_t n = ::read(read_end.get(), bytes.data(), bytes.size());
    shown.append(bytes.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    whole = dropped = 0;
    for (const std::string& line : test::Lines(shown.substr(0, shown.rfind('\n') + 1))) {
      whole += line.rfind("[a]:line ", 0) == 0 ? 1 : 0;
      const std::size_t at = line.find("too slow: ");
      dropped += at == std::string::npos ? 0 : std::stol(line.substr(at + 10));
    }
  }
  EXPECT_EQ(whole + dropped, kLines);
  EXPECT_GT(dropped, 0);
  EXPECT_THAT(shown, HasSubstr("/logs/stdout.log"));
}

// A terminal without output processing, so that bytes stay as they are.
class Terminal {
 public:
  Terminal() {
    int master = -1;
    int slave = -1;
    EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    master_.reset(master);
    slave_.reset(slave);
    termios settings{};
    ::tcgetattr(slave, &settings);
    ::cfmakeraw(&settings);
    ::tcsetattr(slave, TCSANOW, &settings);
  }
  [[nodiscard]] int fd() const { return slave_.get(); }
  std::string Read(std::size_t count) {
    std::string text(count, '\0');
    std::size_t done = 0;
    while (done < count) {
      const ssize_t n = ::read(master_.get(), text.data() + done, count - done);
      if (n <= 0) {
        break;
      }
      done += static_cast<std::size_t>(n);
    }
    return text;
  }

 private:
  UniqueFd master_;
  UniqueFd slave_;
};

TEST(LineAssemblerOnATerminal, Prompt_ShownAfterASilenceThenReplacedByTheLine) {
  Terminal terminal;
  Console console(terminal.fd(), kBuffer, [] {});
  LineAssembler lines(&console, {2, "[a]:", false, ""});
  const Instant now = MonotonicNow();
  lines.Append("name? ", now);
  ASSERT_TRUE(lines.deadline().has_value());
  lines.OnTime(*lines.deadline());
  std::string expected = "[a]:name? ";
  EXPECT_EQ(terminal.Read(expected.size()), expected);
  EXPECT_FALSE(lines.deadline().has_value());
  lines.Append("Bob\n", now);
  expected = "\r\x1b[K[a]:name? Bob\n";
  EXPECT_EQ(terminal.Read(expected.size()), expected);
}

TEST(LineAssemblerOnATerminal, OtherStreamDuringProgress_Overwrites) {
  Terminal terminal;
  Console console(terminal.fd(), kBuffer, [] {});
  LineAssembler a(&console, {2, "[a]:", false, ""});
  LineAssembler b(&console, {3, "[b]:", false, ""});
  a.Append("50%\r.", MonotonicNow());
  b.Append("hello\n", MonotonicNow());
  const std::string expected = "[a]:50%\r\r\x1b[K[b]:hello\n";
  EXPECT_EQ(terminal.Read(expected.size()), expected);
}

}  // namespace
}  // namespace ddl
