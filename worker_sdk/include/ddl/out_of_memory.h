// Out of memory: how a program says it, and how the SDK knows it when a library
// says it.
//
// A micro-step that does not fit its device returns OutOfMemory(...) or throws;
// DataParallel::RunStep then repeats the step with a smaller micro-batch. All
// functions are pure and may be called from any thread.
//
//   if (cudaMalloc(&buffer, bytes) == cudaErrorMemoryAllocation) {
//     cudaGetLastError();  // or the next kernel is taken to have failed
//     ddl::MemoryUse use;
//     use.asked_bytes = bytes;
//     return ddl::OutOfMemory(use, "activations of layer 7");
//   }
#ifndef DDL_OUT_OF_MEMORY_H_
#define DDL_OUT_OF_MEMORY_H_

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace ddl {

// What is known of a device's memory, in bytes. 0: not known.
struct MemoryUse {
  std::int64_t asked_bytes = 0;     // the allocation that failed
  std::int64_t in_use_bytes = 0;    // held by tensors
  std::int64_t reserved_bytes = 0;  // held by the allocator, in_use_bytes included
  std::int64_t free_bytes = 0;      // of the device
  std::int64_t total_bytes = 0;     // of the device
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

// RESOURCE_EXHAUSTED, "out of memory: <text>", with `use` in it.
absl::Status OutOfMemory(const MemoryUse& use, std::string_view text);

// A status made by OutOfMemory; one whose text SaysOutOfMemory; or INTERNAL, UNKNOWN or
// RESOURCE_EXHAUSTED and the text ends with CUDA's bare words: those of a program that
// passes on cudaGetErrorString. Not every RESOURCE_EXHAUSTED: files and quotas run out too.
[[nodiscard]] bool IsOutOfMemory(const absl::Status& status);

// The words of CUDA, HIP, cuBLAS, NCCL, PyTorch (devices and CPU), XLA, TensorFlow and
// CuPy. CUDA's bare "out of memory" is not enough: anything may say that.
[[nodiscard]] bool SaysOutOfMemory(std::string_view text);

// std::bad_alloc (but for bad_array_new_length: an impossible length), or an exception
// whose what() SaysOutOfMemory, such as c10::OutOfMemoryError, or ends with CUDA's bare
// words ("out of memory", "cudaMalloc failed: out of memory").
[[nodiscard]] bool IsOutOfMemory(const std::exception& exception);
// OutOfMemory with what the exception says. REQUIRES: IsOutOfMemory(exception).
absl::Status OutOfMemoryOf(const std::exception& exception);

// The numbers in a status of out of memory: those given to OutOfMemory, else
// those that PyTorch writes into its text.
[[nodiscard]] MemoryUse MemoryUseOf(const absl::Status& status);

enum class MemoryShape : std::uint8_t {
  kUnknown,
  kShortage,       // less is free than was asked for
  kFragmentation,  // enough is free, but not in one piece
};
// kFragmentation: asked <= free + (reserved - in use). What the allocator has
// reserved and tensors do not use is free, in pieces.
[[nodiscard]] MemoryShape ShapeOf(const MemoryUse& use);

// What is known, and which of the two it is, for people; empty: nothing is known.
[[nodiscard]] std::string ExplainMemoryUse(const MemoryUse& use);

// What to try, in this order: against fragmentation, mixed precision and, where it
// can be made smaller, the micro-batch. A sentence.
[[nodiscard]] std::string OutOfMemoryHints(bool micro_batch_can_shrink = true);

}  // namespace ddl

#endif  // DDL_OUT_OF_MEMORY_H_
