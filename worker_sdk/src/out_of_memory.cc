// Out-of-memory statuses: making, recognising, explaining.
#include "ddl/out_of_memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/cord.h"
#include "agent/base/size_text.h"

namespace ddl {
namespace {

constexpr const char* kPayload = "ddlaunch/memory-use";
constexpr std::string_view kSays = "out of memory";

// In lower case.
constexpr std::array<std::string_view, 11> kPhrases = {
    "cuda out of memory",                 // PyTorch
    "hip out of memory",                  // PyTorch on ROCm
    "xpu out of memory",                  // PyTorch on Intel's
    "cuda error: out of memory",          // PyTorch's checks of CUDA's results
    "hip error: out of memory",           //
    "cudaerrormemoryallocation",          // CUDA's own names
    "hiperroroutofmemory",                //
    "cublas_status_alloc_failed",         //
    "resource_exhausted: out of memory",  // XLA
    "oom when allocating",                // TensorFlow
    "can't allocate memory",              // PyTorch on the CPU
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return lower;
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

// PyTorch up to 2.0: "Tried to allocate A (GPU 0; B total capacity; C already
// allocated; D free; E reserved in total by PyTorch)". Later: "Tried to allocate
// A. GPU 0 has a total capacity of B of which D is free. ... C is allocated by
// PyTorch, and F is reserved by PyTorch but unallocated": there C + F are reserved.
MemoryUse ReadPyTorch(std::string_view text) {
  MemoryUse use;
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

// ---- the payload: the five numbers, separated by spaces ----------------------

std::string Encode(const MemoryUse& use) {
  std::string text;
  for (const std::int64_t bytes :
       {use.asked_bytes, use.in_use_bytes, use.reserved_bytes, use.free_bytes, use.total_bytes}) {
    text += std::to_string(std::max<std::int64_t>(bytes, 0)) + " ";
  }
  return text;
}

MemoryUse Decode(const std::string& text) {
  MemoryUse use;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int64_t* const bytes : {&use.asked_bytes, &use.in_use_bytes, &use.reserved_bytes,
                                    &use.free_bytes, &use.total_bytes}) {
    at = std::from_chars(at, end, *bytes).ptr;
    at += at < end ? 1 : 0;
  }
  return use;
}

}  // namespace

absl::Status OutOfMemory(const MemoryUse& use, std::string_view text) {
  std::string message(kSays);
  if (!text.empty()) {
    message += ": " + std::string(text);
  }
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kPayload, absl::Cord(Encode(use)));
  return status;
}

bool SaysOutOfMemory(std::string_view text) {
  const std::string lower = Lower(text);
  return std::any_of(kPhrases.begin(), kPhrases.end(), [&](std::string_view phrase) {
    return lower.find(phrase) != std::string::npos;
  });
}

bool IsOutOfMemory(const absl::Status& status) {
  return !status.ok() && (status.GetPayload(kPayload).has_value() ||
                          SaysOutOfMemory(std::string(status.message())));
}

bool IsOutOfMemory(const std::exception& exception) {
  return dynamic_cast<const std::bad_alloc*>(&exception) != nullptr ||
         SaysOutOfMemory(exception.what());
}

absl::Status OutOfMemoryOf(const std::exception& exception) {
  return OutOfMemory(ReadPyTorch(exception.what()), exception.what());
}

MemoryUse MemoryUseOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  return payload.has_value() ? Decode(std::string(*payload))
                             : ReadPyTorch(std::string(status.message()));
}

MemoryShape ShapeOf(const MemoryUse& use) {
  if (use.asked_bytes <= 0 || (use.free_bytes <= 0 && use.reserved_bytes <= 0)) {
    return MemoryShape::kUnknown;
  }
  const std::int64_t idle = std::max<std::int64_t>(use.reserved_bytes - use.in_use_bytes, 0);
  return use.asked_bytes - std::min(use.free_bytes, use.asked_bytes) <= idle
             ? MemoryShape::kFragmentation
             : MemoryShape::kShortage;
}

std::string ExplainOutOfMemory(const MemoryUse& use) {
  std::string known;
  const auto say = [&](std::int64_t bytes, const char* what) {
    if (bytes > 0) {
      known += (known.empty() ? "" : ", ") + SizeText(bytes) + what;
    }
  };
  say(use.asked_bytes, " asked for");
  say(use.in_use_bytes, " in use");
  say(use.reserved_bytes, " reserved by the allocator");
  say(use.free_bytes, " free");
  say(use.total_bytes, " in all");
  const MemoryShape shape = ShapeOf(use);
  if (shape == MemoryShape::kFragmentation) {
    known += "; that is fragmentation: enough is free, but not in one piece";
  } else if (shape == MemoryShape::kShortage) {
    known += "; that is a shortage: less is free than was asked for";
  }
  return known + (known.empty() ? "" : ". ") +
         "Try in this order: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against "
         "fragmentation, mixed precision, a smaller micro-batch (--max-micro-batch-size), which "
         "leaves the global batch and the rate as they are";
}

}  // namespace ddl
