// Whose failure it was, by the worker's own words.
#include "launcher/failures/failure_account.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <set>
#include <string>

namespace ddl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(BlamesPeer, WordsOfBrokenConnections_Do) {
  for (const char* text :
       {"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error "
        "[127.0.0.1]:1: Connection reset by peer",
        "RuntimeError: [pair.cc:598] Connection closed by peer [127.0.0.1]:33117",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely.",
        "gloo, rank 0 of 2, barrier: the connection to a peer broke: it has died or given up"}) {
    EXPECT_TRUE(BlamesPeer(text)) << text;
  }
}

TEST(BlamesPeer, OwnFailures_DoNot) {
  for (const char* text : {"", "ValueError: the loss is not a number",
                           "torch.cuda.OutOfMemoryError: CUDA out of memory", "Segmentation fault",
                           "KeyError: 'connection'"}) {
    EXPECT_FALSE(BlamesPeer(text)) << text;
  }
}

TEST(BlamesPeerOfCollective, NotAnyConnectionOfTheProgram) {
  EXPECT_TRUE(BlamesPeerOfCollective(
      "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error "
      "[127.0.0.1]:1: Connection reset by peer"));
  EXPECT_TRUE(BlamesPeerOfCollective("ncclRemoteError: A call failed possibly"));
  EXPECT_TRUE(BlamesPeerOfCollective("gloo, rank 0 of 2: the connection to a peer broke"));
  EXPECT_FALSE(
      BlamesPeerOfCollective("ConnectionResetError: [Errno 104] Connection reset by peer"));
  EXPECT_FALSE(BlamesPeerOfCollective("ValueError: gloo is no backend of mine"));
}

TEST(TellsOfSignal, LastLineOfAnExceptionThatAStopRaised_Does) {
  EXPECT_TRUE(TellsOfSignal("Traceback (most recent call last):\n  x\nKeyboardInterrupt\n"));
  EXPECT_TRUE(TellsOfSignal("Traceback\nSignalException: Process 7 got signal: 15"));
  EXPECT_FALSE(TellsOfSignal("  signal.signal(x)\nValueError: the sample is broken"));
  EXPECT_FALSE(TellsOfSignal(""));
}

constexpr char kTraceback[] =
    "INFO: step 4\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\n"
    "    raise ValueError\nValueError: bad\n";

TEST(EndsWithException, NothingBelowTheException_Does) {
  EXPECT_TRUE(EndsWithException(kTraceback));
  EXPECT_TRUE(EndsWithException(std::string(kTraceback).substr(13))) << "nothing above it";
  EXPECT_TRUE(EndsWithException(std::string(kTraceback) +
                                "\nDuring handling of the above "
                                "exception, another exception occurred:\n\n" +
                                kTraceback));
  EXPECT_TRUE(
      EndsWithException("terminate called after throwing an instance of 'std::bad_alloc'\n"
                        "  what():  std::bad_alloc\n"));
}

TEST(EndsWithException, LogRecordAboveIt_DoesNot) {
  const std::string traceback = std::string(kTraceback).substr(13);
  EXPECT_FALSE(EndsWithException("ERROR:root:skipped a bad sample\n" + traceback));
  EXPECT_FALSE(EndsWithException("step 4\n12:00:01 [WARNING] once more\n" + traceback));
  EXPECT_TRUE(EndsWithException("ERROR:root:long ago\nINFO: step 4\n" + traceback));
}

TEST(EndsWithException, WorkWentOnOrThereIsNone_DoesNot) {
  EXPECT_FALSE(EndsWithException(std::string(kTraceback) + "INFO: step 5\n"));
  EXPECT_FALSE(EndsWithException(std::string(kTraceback) + "  42% done\n"));
  EXPECT_FALSE(EndsWithException("Traceback (most recent call last):\n  File \"a.py\""));
  EXPECT_FALSE(EndsWithException("warning: low learning rate"));
  EXPECT_FALSE(EndsWithException(""));
}

class EvidenceTest : public ::testing::Test {
 protected:
  // Ended by our signal, a second after it.
  static WorkerExit Stopped(const std::string& error_text) {
    WorkerExit exit;
    exit.term_signal = SIGTERM;
    exit.error_text = error_text;
    exit.ended_at = exit.failed_at = kStop + seconds(1);
    exit.stderr_at = kStop - milliseconds(50);
    return exit;
  }
  static constexpr Instant kStop{std::chrono::hours(1)};
};

TEST_F(EvidenceTest, EndedBefore_Ended) {
  WorkerExit exit = Stopped("");
  exit.ended_at = kStop - milliseconds(1);
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kEnded);
  exit.term_signal = 0;
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kNone) << "it succeeded";
}

TEST_F(EvidenceTest, ErrorFileFromBefore_CountsUnlessItTellsOfASignal) {
  WorkerExit exit = Stopped("ValueError: bad");
  exit.error_path = "/error.json";
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kNone) << "it came after the stop";
  exit.failed_at = kStop - seconds(60);
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kErrorFile);
  exit.error_text = "Traceback\nSignalException: Process 7 got signal: 15";
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kNone);
}

TEST_F(EvidenceTest, LoggedException_IsAGuessIfItStandsLastAndCloseToTheStop) {
  EXPECT_EQ(EvidenceOfFailure(Stopped(kTraceback), kStop), FailureEvidence::kLastWords);
  EXPECT_EQ(EvidenceOfFailure(Stopped(std::string(kTraceback) + "going on\n"), kStop),
            FailureEvidence::kNone);
  WorkerExit exit = Stopped(kTraceback);
  exit.stderr_at = kStop - seconds(60);
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kNone) << "it lived on";
  exit.stderr_at = kStop + seconds(1);
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kNone) << "the stop's own";
}

constexpr char kMemoryWords[] = "torch.OutOfMemoryError: CUDA out of memory. Tried\n";

TEST_F(EvidenceTest, WordsOfMemory_AreAGuessWithoutATracebackToo) {
  EXPECT_EQ(EvidenceOfFailure(Stopped(kMemoryWords), kStop), FailureEvidence::kLastWords);
  WorkerExit exit = Stopped(std::string(kMemoryWords) + "got SIGTERM: terminating");
  exit.stderr_at = kStop + seconds(1);
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kLastWords) << "a stop makes no such";
  exit.stderr_at = kStop - seconds(60);
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kNone) << "it lived on";
  exit.error_path = "/error.json";
  EXPECT_EQ(EvidenceOfFailure(exit, kStop), FailureEvidence::kErrorFile);
}

TEST_F(EvidenceTest, UsersCodeAndTheWorkersReport_AreCertain) {
  const std::set<std::int32_t> codes = {77, 137, 139, 143};
  const auto ended = [&](std::int32_t code, std::int32_t signal, bool reported = false) {
    WorkerExit exit = Stopped("");
    exit.exit_code = code;
    exit.term_signal = signal;
    return EvidenceOfFailure(exit, kStop, {&codes, reported});
  };
  EXPECT_EQ(ended(77, 0), FailureEvidence::kOutOfMemory);
  EXPECT_EQ(ended(0, SIGSEGV), FailureEvidence::kOutOfMemory);
  EXPECT_EQ(ended(0, SIGTERM, true), FailureEvidence::kOutOfMemory);
  EXPECT_EQ(ended(3, 0), FailureEvidence::kNone);
  for (const std::int32_t ours : {SIGTERM, SIGKILL}) {
    EXPECT_EQ(ended(0, ours), FailureEvidence::kNone) << ours;
    EXPECT_EQ(ended(128 + ours, 0), FailureEvidence::kNone) << "a shell whose program we ended";
  }
}

TEST(EndsWithException, NativeStackBelowIt_Does) {
  EXPECT_TRUE(EndsWithException(
      "terminate called after throwing an instance of 'c10::Error'\n  what():  bad\n"
      "Exception raised from f at x.cpp:9 (most recent call first):\nframe #0: a\nframe #1: b\n"));
  EXPECT_TRUE(EndsWithException(std::string(kTraceback) +
                                "CUDA kernel errors might be asynchronously reported\n"
                                "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"));
}

}  // namespace
}  // namespace ddl
