// The summary, word for word, and the exit-code rule.
#include "launcher/failures/failure_report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

core::WorkerFailure Failure(std::int32_t rank, std::int32_t exit_code, std::int32_t signal) {
  core::WorkerFailure failure;
  failure.rank = rank;
  failure.local_rank = rank % 4;
  failure.pid = 1000 + rank;
  failure.host = "node1";
  failure.exit_code = exit_code;
  failure.term_signal = signal;
  failure.wall_time_s = 1'700'000'000;
  return failure;
}

TEST(FormatFailureReport, TwoFailures_GoldenText) {
  FailureReport report;
  report.program = "train.py";
  report.root_cause = Failure(6, 3, 0);
  report.root_cause.error_text = "Traceback:\n  f()\nValueError: bad";
  report.root_cause.error_file = "/logs/2/error.json";
  report.others = {Failure(6, 3, 0), Failure(5, 0, 15)};
  EXPECT_EQ(FormatFailureReport(report),
            R"(============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2023-11-14_22:13:20 UTC
  host      : node1
  rank      : 5 (local_rank: 1)
  exitcode  : -15 (pid: 1005)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-11-14_22:13:20 UTC
  host      : node1
  rank      : 6 (local_rank: 2)
  exitcode  : 3 (pid: 1006)
  error_file: /logs/2/error.json
  traceback :
    Traceback:
      f()
    ValueError: bad
============================================================
)");
}

TEST(FormatFailureReport, Killed_SignalNamedWithHint) {
  FailureReport report;
  report.program = "train_bin";
  report.root_cause = Failure(0, 0, 9);
  report.root_cause.hint = "It was the out-of-memory killer.";
  const std::string text = FormatFailureReport(report);
  EXPECT_THAT(text, HasSubstr("  traceback : Signal 9 (SIGKILL) received by PID 1000\n"));
  EXPECT_THAT(text, HasSubstr("  hint      : It was the out-of-memory killer.\n"));
  EXPECT_THAT(text, HasSubstr("<NO_OTHER_FAILURES>"));
  EXPECT_THAT(text, HasSubstr("exitcode  : -9 (pid: 1000)"));
}

TEST(FormatFailureReport, TracebackOfAFileThatIsNotKept_IsNotCalledStderr) {
  FailureReport report;
  report.root_cause = Failure(0, 1, 0);
  report.root_cause.error_text = "Traceback (most recent call last):\nValueError: bad";
  EXPECT_THAT(FormatFailureReport(report), HasSubstr("  traceback :\n    Traceback (most"));
}

TEST(FormatFailureReport, SilentFailure_SaysSo) {
  FailureReport report;
  report.root_cause = Failure(0, 1, 0);
  EXPECT_THAT(FormatFailureReport(report), HasSubstr("wrote nothing to stderr"));
}

TEST(FormatFailureReport, SixtyFourFailures_BoundedListAndTotal) {
  FailureReport report;
  report.root_cause = Failure(17, 1, 0);
  for (std::int32_t rank = 0; rank < 64; ++rank) {
    report.others.push_back(Failure(rank, 1, 0));
  }
  const std::string text = FormatFailureReport(report);
  EXPECT_THAT(text, HasSubstr("[8]:\n"));
  EXPECT_THAT(text, Not(HasSubstr("[9]:\n")));
  EXPECT_THAT(text, HasSubstr("... and 55 more; 64 workers failed in all"));
}

}  // namespace
}  // namespace ddl
