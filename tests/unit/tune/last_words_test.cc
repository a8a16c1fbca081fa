// Out of memory in a trial's last words.
#include "launcher/tune/last_words.h"

#include <gtest/gtest.h>

namespace ddl::tune {
namespace {

TEST(LastWords, OfDeviceAndHost_AreOutOfMemory) {
  for (const char* const text :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "error: cudaErrorMemoryAllocation at step 3", "OOM when allocating tensor with shape[64]",
        "RESOURCE_EXHAUSTED: Failed to allocate request for 5.41GiB on device ordinal 0",
        "terminate called after throwing an instance of 'std::bad_alloc'", "MemoryError",
        "worker 0 was killed by the out-of-memory killer: ...", "Out Of Memory"}) {
    EXPECT_TRUE(SaysOutOfMemory(text)) << text;
  }
}

TEST(LastWords, OfOtherFailures_AreNot) {
  for (const char* const text : {"", "ValueError: shapes do not match", "oom", "memory"}) {
    EXPECT_FALSE(SaysOutOfMemory(text)) << text;
  }
}

}  // namespace
}  // namespace ddl::tune
