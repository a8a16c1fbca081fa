// What a worker's stderr says last.
#include "launcher/failures/stderr_words.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/failures/failure_account.h"
#include "launcher/failures/out_of_memory.h"

namespace ddl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMemory[] = "CUDA out of memory. Tried to allocate 2.00 GiB";

std::string Lines(int count, const std::string& line = "step") {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += line + " " + std::to_string(i) + "\n";
  }
  return text;
}

std::string Traceback(const std::string& exception, int calls = 1) {
  std::string text = "Traceback (most recent call last):\n";
  for (int i = 0; i < calls; ++i) {
    text += "  File \"train.py\", line 7, in f\n    f()\n";
  }
  return text + exception + "\n";
}

std::string Native(const std::string& what, int frames) {
  return "terminate called after throwing an instance of 'c10::Error'\n  what():  " + what +
         "\nException raised from malloc at Allocator.cpp:936 (most recent call first):\n" +
         Lines(frames, "frame #1: at::native::addmm + 0x57");
}

std::string AllRanks(const std::string& text) {
  std::string prefixed;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = text.find('\n', start) + 1;
    prefixed += "[rank12]: " + text.substr(start, end - start);
    start = end;
  }
  return prefixed;
}

TEST(LastWords, ManyLines_TheLastTwenty) {
  EXPECT_THAT(LastWords(Lines(100)), StartsWith("step 80\n"));
  EXPECT_EQ(LastWords("one\n"), "one");
  EXPECT_EQ(LastWords(""), "");
}

TEST(LastWords, ManyNativeFrames_TheExceptionAndTheFirstOfThem) {
  const std::string words = LastWords(Lines(9) + Native(kMemory, 90));
  EXPECT_THAT(words, HasSubstr(kMemory));
  EXPECT_THAT(words, HasSubstr("0x57 3\nframe #...: 86 more"));
  EXPECT_TRUE(EndsWithException(words)) << words;
}

TEST(LastWords, WhatWithManyLinesBelow_IsKept) {
  const std::string words = LastWords(Native(kMemory, 3) + Lines(50, "note"));
  EXPECT_THAT(words, StartsWith("terminate called"));
  EXPECT_THAT(words, HasSubstr(kMemory));
  EXPECT_THAT(words, HasSubstr("lines left out)\nnote 33\n"));
}

TEST(LastWords, LongTraceback_ItsHeadAndWhatStandsAboveIt) {
  const std::string caught = LastWords("ERROR:root:skipped\n" + Traceback("ValueError: bad", 30));
  EXPECT_THAT(caught, StartsWith("ERROR:root:skipped\nTraceback (most"));
  EXPECT_FALSE(EndsWithException(caught)) << "it was logged";
  const std::string words = LastWords(Lines(3) + Traceback("ValueError: bad", 30));
  EXPECT_THAT(words, HasSubstr("Traceback (most recent call last):\n  (44 lines left out)\n"));
  EXPECT_TRUE(EndsWithException(words)) << words;
}

TEST(LastWords, OldTraceback_IsLeftOut) {
  EXPECT_THAT(LastWords(Traceback("ValueError: bad", 30) + Lines(25)), StartsWith("step 5\n"));
}

TEST(LastWords, PyTorchsRankAtEachLine_IsLeftOut) {
  const std::string words = LastWords(AllRanks(Traceback("ValueError: bad")) + "[rank1]:[E12 x]\n");
  EXPECT_THAT(words, StartsWith("Traceback (most recent call last):\n  File"));
  EXPECT_THAT(words, HasSubstr("\n[rank1]:[E12 x]"));
  EXPECT_TRUE(EndsWithException(LastWords(AllRanks(Traceback("ValueError: bad")))));
}

TEST(FinalException, OfSeveral_TheLast) {
  const std::string text = Traceback("KeyError: 'a'") + Lines(3) + Traceback("ValueError: bad");
  EXPECT_EQ(FinalException(text), "ValueError: bad\n");
  EXPECT_EQ(FinalException(Lines(3)), "");
  EXPECT_EQ(FinalException("Error: a shell's\n"), "");
  EXPECT_EQ(FinalException("    f()\na.b.BadError: cut above\nmore\n"),
            "a.b.BadError: cut above\nmore\n");
  EXPECT_EQ(FinalException(Traceback("odd: name")), "odd: name\n");
}

TEST(FinalException, ThoseThatEndNothing_DoNotCount) {
  for (const char* above : {"Exception ignored in: <function A.__del__>\n",
                            "Exception in thread Thread-3 (pin_memory):\n"}) {
    EXPECT_THAT(std::string(FinalException(Traceback("ValueError: bad") + above +
                                           Traceback("OSError: closed"))),
                StartsWith("ValueError: bad\n"));
  }
  EXPECT_THAT(
      std::string(FinalException(Traceback("ValueError: bad") + Traceback("KeyboardInterrupt"))),
      StartsWith("ValueError: bad\n"));
}

TEST(LastSaysOutOfMemory, TheFinalExceptionDecides) {
  const std::string old = std::string(kMemory) + " at batch 64, probing\n";
  EXPECT_FALSE(LastSaysOutOfMemory(old + Traceback("FileNotFoundError: no /data")));
  EXPECT_FALSE(LastSaysOutOfMemory(old + "ValueError: bad label\n"));
  EXPECT_FALSE(LastSaysOutOfMemory(old + Native("CUDA error: an illegal access", 2)));
  EXPECT_FALSE(LastSaysOutOfMemory(
      Traceback(std::string("RuntimeError: ") + kMemory) +
      "\nDuring handling of the above exception, another exception occurred:\n\n" +
      Traceback("ValueError: bad")));
  EXPECT_TRUE(LastSaysOutOfMemory(Traceback(std::string("RuntimeError: ") + kMemory)));
  EXPECT_TRUE(LastSaysOutOfMemory(
      Traceback(std::string("RuntimeError: ") + kMemory) +
      "\nThe above exception was the direct cause of the following exception:\n\n" +
      Traceback("TrainError: step 7 failed")));
  EXPECT_TRUE(LastSaysOutOfMemory(Traceback("x.ResourceExhaustedError: Graph execution error:") +
                                  Lines(9) + "OOM when allocating tensor\n"))
      << "a message of many lines";
  EXPECT_TRUE(LastSaysOutOfMemory(LastWords(
      Traceback("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes",
                20) +
      Lines(60, "\tBuffer") + Lines(15, "wandb: loss"))));
  EXPECT_FALSE(LastSaysOutOfMemory(Traceback(std::string("RuntimeError: ") + kMemory) + Lines(8)))
      << "it went on";
  EXPECT_TRUE(LastSaysOutOfMemory(Traceback(std::string("RuntimeError: ") + kMemory) +
                                  Native("CUDA driver shutting down", 3)))
      << "that is how it ended, not why";
}

TEST(LastSaysOutOfMemory, WithoutAnException_TheLastLinesDecide) {
  EXPECT_TRUE(LastSaysOutOfMemory(std::string(kMemory) + "\n" + Lines(4)));
  EXPECT_FALSE(LastSaysOutOfMemory(std::string(kMemory) + "\n" + Lines(5)));
  EXPECT_TRUE(LastSaysOutOfMemory("F0101 Check failed: CUDA error: out of memory\n" +
                                  Lines(15, "    @     0x7f60")));
}

TEST(LastSaysOutOfMemory, NativeStackOfAnyLength_IsRecognised) {
  for (const int frames : {0, 10, 25, 200}) {
    EXPECT_TRUE(LastSaysOutOfMemory(LastWords(Native(kMemory, frames)))) << frames;
  }
}

TEST(LastSaysOutOfMemory, WordsOfManyLibraries_AreKnown) {
  for (const char* text :
       {"torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
        "memory)\nCurrently allocated     : 22.43 GiB\nRequested               : 4.07 GiB",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes",
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: cuda_memory_resource.hpp"}) {
    EXPECT_TRUE(LastSaysOutOfMemory(text)) << text;
  }
  for (const char* text : {"terminate called after throwing an instance of 'std::bad_alloc'\n"
                           "  what():  std::bad_alloc",
                           "Out of memory: Killed process 7 (python3)", "MemoryError"}) {
    EXPECT_FALSE(LastSaysOutOfMemory(text)) << text << ": the host's memory";
  }
}

TEST(LastWords, AnyBytes_NeverFail) {
  for (const char* text : {"\n\n\n", "[rank]: x", "[rank1", "#", "@", "frame #", "a\rb\r\n", ":"}) {
    EXPECT_THAT(LastWords(text), Not(HasSubstr("left out")));
    EXPECT_THAT(std::string(FinalException(text)), Not(HasSubstr("Error")));
  }
}

}  // namespace
}  // namespace ddl
