// A device's memory: how programs say that it ran out, what is known of it, and what
// to try. Pure functions; thread safe.
#ifndef DDLAUNCH_AGENT_BASE_DEVICE_MEMORY_H_
#define DDLAUNCH_AGENT_BASE_DEVICE_MEMORY_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ddl {

// In bytes. 0: not known.
struct DeviceMemory {
  std::int64_t asked_bytes = 0;     // the allocation that failed
  std::int64_t in_use_bytes = 0;    // held by tensors
  std::int64_t reserved_bytes = 0;  // held by the allocator, in_use_bytes included
  std::int64_t free_bytes = 0;      // of the device
  std::int64_t total_bytes = 0;     // of the device
  friend bool operator==(const DeviceMemory&, const DeviceMemory&) = default;
};

// The words of CUDA, HIP, cuBLAS, NCCL, PyTorch (devices and CPU), XLA, TensorFlow, CuPy
// and macros around CUDA's own text, in any case. "out of memory" alone is not enough:
// it may be the host's, or a log's.
[[nodiscard]] bool SaysOutOfDeviceMemory(std::string_view text);

// The numbers that PyTorch writes into its error.
[[nodiscard]] DeviceMemory ReadDeviceMemory(std::string_view text);

enum class MemoryLack : std::uint8_t {
  kUnknown,
  kShortage,       // less is free than was asked for
  kFragmentation,  // enough is free, but not in one piece
};
// kFragmentation: asked <= free + (reserved - in use). What the allocator has
// reserved and tensors do not use is free, in pieces.
[[nodiscard]] MemoryLack LackOf(const DeviceMemory& memory);

// "2.0 GiB asked for, 35.5 GiB in use, 512.0 MiB free; that is a shortage: less is
// free than was asked for", of what is known.
[[nodiscard]] std::string DescribeDeviceMemory(const DeviceMemory& memory);

// What to try, in this order: against fragmentation, mixed precision and, where it
// can be made smaller, the micro-batch.
[[nodiscard]] std::string DeviceMemoryHints(bool micro_batch_can_shrink = true);

// Both, in one line, for people.
[[nodiscard]] std::string ExplainDeviceMemory(const DeviceMemory& memory);

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_DEVICE_MEMORY_H_
