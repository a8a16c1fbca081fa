// Whose failure it was, by the worker's own words.
#include "launcher/worker/failure_account.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

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

TEST(TellsOfSignal, LastLineOfAnExceptionThatAStopRaised_Does) {
  EXPECT_TRUE(TellsOfSignal("Traceback (most recent call last):\n  x\nKeyboardInterrupt\n"));
  EXPECT_TRUE(TellsOfSignal("Traceback\nSignalException: Process 7 got signal: 15"));
  EXPECT_FALSE(TellsOfSignal("  signal.signal(x)\nValueError: the sample is broken"));
  EXPECT_FALSE(TellsOfSignal(""));
}

TEST(TellsOfException, Tracebacks_Do) {
  EXPECT_TRUE(TellsOfException("Traceback (most recent call last):\n  File \"a.py\""));
  EXPECT_TRUE(TellsOfException("terminate called after throwing an instance of 'std::bad_alloc'"));
  EXPECT_FALSE(TellsOfException("warning: low learning rate"));
}

}  // namespace
}  // namespace ddl
