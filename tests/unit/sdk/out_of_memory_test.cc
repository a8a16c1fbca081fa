// Out of memory: recognised in the words of others, and explained.
#include "ddl/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <string>

namespace ddl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
constexpr std::int64_t kGiB = std::int64_t{1} << 30U;

// As PyTorch 1.13 and 2.7 write it.
constexpr const char* kOldTorch =
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 40.00 GiB total capacity; 35.50 GiB "
    "already allocated; 512.00 MiB free; 38.50 GiB reserved in total by PyTorch) If reserved "
    "memory "
    "is >> allocated memory try setting max_split_size_mb to avoid fragmentation.";
constexpr const char* kNewTorch =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.50 GiB of "
    "which 1.50 GiB is free. Process 2493055 has 12.02 GiB memory in use. Including non-PyTorch "
    "memory, this process has 966.00 MiB memory in use. Of the allocated memory 734.00 MiB is "
    "allocated by PyTorch, and 34.00 MiB is reserved by PyTorch but unallocated. If reserved but "
    "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True";

TEST(OutOfMemory, TypedStatus_KeepsItsNumbersAndWords) {
  const MemoryUse use{1, 2, 3, 4, std::numeric_limits<std::int64_t>::max()};
  const absl::Status status = OutOfMemory(use, "activations");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "out of memory: activations");
  EXPECT_TRUE(IsOutOfMemory(status));
  EXPECT_EQ(MemoryUseOf(status), use);
  EXPECT_EQ(OutOfMemory({}, "").message(), "out of memory");
}

TEST(OutOfMemory, NegativeNumbers_AreUnknown) {
  EXPECT_EQ(MemoryUseOf(OutOfMemory({-1, -2, -3, -4, 5}, "x")), (MemoryUse{0, 0, 0, 0, 5}));
}

TEST(OutOfMemory, WordsOfOthers_AreRecognised) {
  for (const char* const text :
       {kOldTorch, kNewTorch, "HIP out of memory. Tried to allocate 1.00 GiB",
        "CUDA error: out of memory", "cudaErrorMemoryAllocation",
        "RuntimeError: CUDA driver error: out of memory",
        "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:66",
        ("failed to allocate 2.2KiB (2304 bytes) from device: RESOURCE_EXHAUSTED: : "
         "CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        "RESOURCE_EXHAUSTED: Failed to allocate request for 5.41GiB on device ordinal 0",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        "OOM when allocating tensor with shape[64,1024]",
        "[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory",
        "nccl, rank 0 of 2, all-reduce of 7 numbers: CUDA says out of memory",
        "CUDA error at layers.cu:42: out of memory", "GPUassert: out of memory train.cu 34",
        "Check failed: error == cudaSuccess (2 vs. 0)  out of memory"}) {
    EXPECT_TRUE(SaysOutOfMemory(text)) << text;
    EXPECT_TRUE(IsOutOfMemory(absl::InternalError(text))) << text;
    EXPECT_TRUE(IsOutOfMemory(std::runtime_error(text))) << text;
  }
}

TEST(OutOfMemory, CudasBareWords_AreOfAnExceptionOrAnErrorOfOurs) {
  for (const char* const text :
       {"out of memory", "Out of memory.", "cudaMalloc failed: out of memory",
        "CUDA runtime error: out of memory", "layer 3: out of memory\n", "(out of memory"}) {
    EXPECT_TRUE(IsOutOfMemory(std::runtime_error(text))) << text;
    EXPECT_TRUE(IsOutOfMemory(absl::InternalError(text))) << text;
    EXPECT_TRUE(IsOutOfMemory(absl::UnknownError(text))) << text;
  }
  // A peer's, or the round's.
  EXPECT_FALSE(IsOutOfMemory(absl::AbortedError("rank 3 ran out of memory")));
  EXPECT_FALSE(IsOutOfMemory(absl::UnavailableError("rank 3: out of memory")));
  for (const char* const text : {"timeout of memory", "out of memory: Killed process 12 (train)",
                                 "out of memory in rank 3 was handled", "f memory", ""}) {
    EXPECT_FALSE(IsOutOfMemory(std::runtime_error(text))) << text;
    EXPECT_FALSE(IsOutOfMemory(absl::InternalError(text))) << text;
  }
}

TEST(OutOfMemory, OtherErrors_AreNot) {
  EXPECT_FALSE(IsOutOfMemory(absl::OkStatus()));
  EXPECT_FALSE(IsOutOfMemory(absl::ResourceExhaustedError("too many open files")));
  EXPECT_FALSE(IsOutOfMemory(absl::InternalError("CUDA error: an illegal memory access")));
  EXPECT_FALSE(IsOutOfMemory(std::runtime_error("out of range")));
  EXPECT_FALSE(SaysOutOfMemory(""));
}

TEST(OutOfMemory, BadAlloc_Is) {
  EXPECT_TRUE(IsOutOfMemory(std::bad_alloc()));
  const absl::Status status = OutOfMemoryOf(std::bad_alloc());
  EXPECT_TRUE(IsOutOfMemory(status));
  EXPECT_EQ(status.message(), "out of memory: std::bad_alloc");
}

TEST(OutOfMemory, ImpossibleArrayLength_IsAMistakeOfTheProgram) {
  EXPECT_FALSE(IsOutOfMemory(std::bad_array_new_length()));
}

TEST(MemoryUseOf, PyTorchsText_IsRead) {
  EXPECT_EQ(
      MemoryUseOf(OutOfMemoryOf(std::runtime_error(kOldTorch))),
      (MemoryUse{2 * kGiB, 35 * kGiB + kGiB / 2, 38 * kGiB + kGiB / 2, 512 * kMiB, 40 * kGiB}));
  EXPECT_EQ(MemoryUseOf(absl::InternalError(kNewTorch)),
            (MemoryUse{2 * kGiB, 734 * kMiB, 768 * kMiB, kGiB + kGiB / 2, 14 * kGiB + kGiB / 2}));
}

TEST(MemoryUseOf, TornOrStrangeText_IsUnknownNotACrash) {
  const std::string text = kNewTorch;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const MemoryUse use = MemoryUseOf(absl::InternalError(text.substr(0, length)));
    EXPECT_GE(use.asked_bytes, 0);
  }
  for (const char* const strange :
       {"Tried to allocate ", "Tried to allocate x GiB", "Tried to allocate -1 GiB",
        "Tried to allocate 1e300 GiB", "Tried to allocate nan GiB", " is free", "GiB is free",
        "1 is free", "Tried to allocate 1 parsec"}) {
    EXPECT_EQ(MemoryUseOf(absl::InternalError(strange)), MemoryUse{}) << strange;
  }
}

TEST(ShapeOf, EnoughButNotInOnePiece_IsFragmentation) {
  // 512 MiB free and 3 GiB reserved but not in use, for 2 GiB.
  EXPECT_EQ(ShapeOf(MemoryUseOf(absl::InternalError(kOldTorch))), MemoryShape::kFragmentation);
  // 1.5 GiB and 34 MiB, for 2 GiB.
  EXPECT_EQ(ShapeOf(MemoryUseOf(absl::InternalError(kNewTorch))), MemoryShape::kShortage);
  EXPECT_EQ(ShapeOf({}), MemoryShape::kUnknown);
  EXPECT_EQ(ShapeOf({kGiB, 0, 0, 0, 8 * kGiB}), MemoryShape::kUnknown);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(ShapeOf({most, 0, most, most, most}), MemoryShape::kFragmentation);
}

TEST(ExplainMemoryUse, NumbersAndShape_AreSaid) {
  EXPECT_THAT(ExplainMemoryUse(MemoryUseOf(absl::InternalError(kOldTorch))),
              AllOf(HasSubstr("2.0 GiB asked for"), HasSubstr("35.5 GiB in use"),
                    HasSubstr("512.0 MiB free"), HasSubstr("that is fragmentation")));
  EXPECT_THAT(ExplainMemoryUse(MemoryUseOf(absl::InternalError(kNewTorch))),
              HasSubstr("that is a shortage"));
  EXPECT_EQ(ExplainMemoryUse({}), "");
}

TEST(OutOfMemoryHints, Order_IsFragmentationPrecisionMicroBatch) {
  const std::string text = OutOfMemoryHints();
  EXPECT_LT(text.find("expandable_segments"), text.find("mixed precision"));
  EXPECT_LT(text.find("mixed precision"), text.find("a smaller micro-batch"));
  EXPECT_THAT(OutOfMemoryHints(false), Not(HasSubstr("micro-batch")));
}

}  // namespace
}  // namespace ddl
