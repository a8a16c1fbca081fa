// Known words, PyTorch's numbers, and the way out.
#include "agent/base/device_memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>
#include <utility>

#include "agent/base/size_text.h"

namespace ddl {
namespace {

// In lower case; beside each, whose words they are.
constexpr std::array<std::string_view, 32> kPhrases = {
    "cuda out of memory",                      // PyTorch
    "hip out of memory",                       // PyTorch on ROCm
    "xpu out of memory",                       // PyTorch on Intel's
    "mps backend out of memory",               // PyTorch on Apple's
    "cuda error: out of memory",               // PyTorch's checks of CUDA's results
    "hip error: out of memory",                // and of HIP's
    "cuda driver error: out of memory",        // of the driver's results, with expandable segments
    "cuda runtime error (2) : out of memory",  // and in older releases
    "cudaerrormemoryallocation",               // CUDA's own names
    "cuda_error_out_of_memory",                // those of its driver; XLA and TensorFlow print them
    "hiperroroutofmemory",                     // HIP's
    "_status_alloc_failed",                    // cuBLAS, cuDNN, cuSOLVER, cuSPARSE, hipBLAS
    "cufft_alloc_failed",                      // cuFFT
    "curand_status_allocation_failed",         // cuRAND
    "cuda failure 'out of memory'",            // NCCL
    "cuda failure 2 'out of memory'",          // NCCL from 2.15 on
    "resource_exhausted: out of memory",       // XLA
    "resource exhausted: out of memory",       // XLA of older releases of JAX and TensorFlow
    "resource_exhausted: failed to allocate",  // XLA, for one buffer
    "oom when allocating",                     // TensorFlow
    "out of memory error on gpu",              // PaddlePaddle
    "can't allocate memory",                   // PyTorch on the CPU
    "would exceed allowed memory",             // PyTorch with cudaMallocAsync
    "torch.outofmemoryerror",                  // and its exceptions
    "torch.cuda.outofmemoryerror",
    "c10::outofmemoryerror",
    "out of memory allocating ",  // CuPy, XLA
    "bad_alloc: out_of_memory",   // RMM
    "out of gpu memory",          // CUDA.jl
    "cuda says out of memory",    // the SDK's NCCL backend
    "cudasuccess (2 vs. 0)",      // glog's CHECK_EQ, as in Caffe
    "gpuassert: out of memory",   // a macro that many have copied
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return lower;
}

// CUDA's bare words for cudaErrorMemoryAllocation.
constexpr std::string_view kBareWords = "out of memory";

// Whether a line, in lower case, ends with CUDA's bare words after something that names
// CUDA or HIP: "cudaMalloc failed: out of memory", "CUDA error at a.cu:7: out of memory".
// The bare words alone may be the host's ("kernel: Out of memory: Killed process"), a
// log's ("recovered from out of memory") or a library's of any kind. An exception that
// nobody caught has them alone when it was made of CUDA's text.
bool LineSaysSo(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '.')) {
    line.remove_suffix(1);
  }
  if (!line.ends_with(kBareWords)) {
    return false;
  }
  const std::string_view before = line.substr(0, line.size() - kBareWords.size());
  const auto names = [before](std::string_view library) {
    return before.find(library) != std::string_view::npos;
  };
  return before.ends_with("what():  ") ||
         (before.ends_with(": ") && (names("cuda") || names("hip error") || names("hipmalloc")));
}

bool AnyLineSaysSo(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (LineSaysSo(text.substr(0, end))) {
      return true;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

// ---- amounts in PyTorch's text ----------------------------------------------

// "1.95", "GiB"; nothing when they are no amount.
std::optional<std::int64_t> Amount(std::string_view number, std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {std::pair{"bytes", 0x1p0},
                                                                         {"KiB", 0x1p10},
                                                                         {"MiB", 0x1p20},
                                                                         {"GiB", 0x1p30},
                                                                         {"TiB", 0x1p40}};
  const auto* const known = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& entry) {
    return unit.substr(0, entry.first.size()) == entry.first;
  });
  double value = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  constexpr double kMost = 0x1p62;
  if (known == kUnits.end() || error != std::errc() || stop != number.data() + number.size() ||
      !(value >= 0 && value * known->second < kMost)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(value * known->second);
}

// The amount right after `phrase`.
std::optional<std::int64_t> AmountAfter(std::string_view text, std::string_view phrase) {
  const std::size_t at = text.find(phrase);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view rest = text.substr(at + phrase.size());
  const std::size_t space = rest.find(' ');
  return space == std::string_view::npos ? std::nullopt
                                         : Amount(rest.substr(0, space), rest.substr(space + 1));
}

// The amount right before `phrase`.
std::optional<std::int64_t> AmountBefore(std::string_view text, std::string_view phrase) {
  const std::size_t at = text.find(phrase);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view head = text.substr(0, at);
  const std::size_t unit = head.rfind(' ');
  if (unit == std::string_view::npos || unit == 0) {
    return std::nullopt;
  }
  const std::size_t before = head.rfind(' ', unit - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return Amount(head.substr(begin, unit - begin), head.substr(unit + 1));
}

}  // namespace

bool SaysOutOfDeviceMemory(std::string_view text) {
  const std::string lower = Lower(text);
  return std::any_of(
             kPhrases.begin(), kPhrases.end(),
             [&](std::string_view phrase) { return lower.find(phrase) != std::string::npos; }) ||
         AnyLineSaysSo(lower);
}

// PyTorch up to 2.0: "Tried to allocate A (GPU 0; B total capacity; C already
// allocated; D free; E reserved in total by PyTorch)". Later: "Tried to allocate
// A. GPU 0 has a total capacity of B of which D is free. ... C is allocated by
// PyTorch, and F is reserved by PyTorch but unallocated": there C + F are reserved.
DeviceMemory ReadDeviceMemory(std::string_view text) {
  DeviceMemory use;
  use.asked_bytes = AmountAfter(text, "Tried to allocate ").value_or(0);
  if (const auto old = AmountBefore(text, " total capacity;"); old.has_value()) {
    use.total_bytes = *old;
    use.in_use_bytes = AmountBefore(text, " already allocated").value_or(0);
    use.free_bytes = AmountBefore(text, " free;").value_or(0);
    use.reserved_bytes = AmountBefore(text, " reserved in total").value_or(0);
    return use;
  }
  use.total_bytes = AmountAfter(text, "total capacity of ").value_or(0);
  use.free_bytes = AmountBefore(text, " is free").value_or(0);
  use.in_use_bytes = AmountBefore(text, " is allocated by PyTorch").value_or(0);
  if (const auto idle = AmountBefore(text, " is reserved by PyTorch"); idle.has_value()) {
    use.reserved_bytes = use.in_use_bytes + *idle;
  }
  return use;
}

MemoryLack LackOf(const DeviceMemory& memory) {
  if (memory.asked_bytes <= 0 || (memory.free_bytes <= 0 && memory.reserved_bytes <= 0)) {
    return MemoryLack::kUnknown;
  }
  const std::int64_t idle = std::max<std::int64_t>(memory.reserved_bytes - memory.in_use_bytes, 0);
  return memory.asked_bytes - std::min(memory.free_bytes, memory.asked_bytes) <= idle
             ? MemoryLack::kFragmentation
             : MemoryLack::kShortage;
}

std::string DescribeDeviceMemory(const DeviceMemory& memory) {
  std::string known;
  const auto say = [&](std::int64_t bytes, const char* what) {
    if (bytes > 0) {
      known += (known.empty() ? "" : ", ") + SizeText(bytes) + what;
    }
  };
  say(memory.asked_bytes, " asked for");
  say(memory.in_use_bytes, " in use");
  say(memory.reserved_bytes, " reserved by the allocator");
  say(memory.free_bytes, " free");
  say(memory.total_bytes, " in all");
  switch (LackOf(memory)) {
    case MemoryLack::kFragmentation:
      return known + "; that is fragmentation: enough is free, but not in one piece";
    case MemoryLack::kShortage:
      return known + "; that is a shortage: less is free than was asked for";
    case MemoryLack::kUnknown:
      break;
  }
  return known;
}

std::string DeviceMemoryHints(bool micro_batch_can_shrink) {
  const std::string hints =
      "Try in this order: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against "
      "fragmentation, mixed precision";
  return hints + (micro_batch_can_shrink
                      ? ", a smaller micro-batch (--max-micro-batch-size), which leaves the global "
                        "batch and the rate as they are"
                      : "");
}

std::string ExplainDeviceMemory(const DeviceMemory& memory) {
  const std::string known = DescribeDeviceMemory(memory);
  return known + (known.empty() ? "" : ". ") + DeviceMemoryHints();
}

}  // namespace ddl
