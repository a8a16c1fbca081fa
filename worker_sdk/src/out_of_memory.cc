// Out-of-memory statuses: making, recognising, explaining.
#include "ddl/out_of_memory.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <new>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "agent/base/device_memory.h"

namespace ddl {
namespace {

static_assert(static_cast<int>(MemoryShape::kUnknown) == static_cast<int>(MemoryLack::kUnknown));
static_assert(static_cast<int>(MemoryShape::kShortage) == static_cast<int>(MemoryLack::kShortage));
static_assert(static_cast<int>(MemoryShape::kFragmentation) ==
              static_cast<int>(MemoryLack::kFragmentation));

constexpr const char* kPayload = "ddlaunch/memory-use";
constexpr std::string_view kSays = "out of memory";

DeviceMemory ToDeviceMemory(const MemoryUse& use) {
  return {use.asked_bytes, use.in_use_bytes, use.reserved_bytes, use.free_bytes, use.total_bytes};
}

MemoryUse ReadPyTorch(std::string_view text) {
  const DeviceMemory memory = ReadDeviceMemory(text);
  return {memory.asked_bytes, memory.in_use_bytes, memory.reserved_bytes, memory.free_bytes,
          memory.total_bytes};
}

// "cudaMalloc failed: out of memory", "Out of memory.", but not "timeout of memory".
bool EndsInBareWords(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \n\r\t.!");
  const std::string_view kept = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  if (kept.size() < kSays.size()) {
    return false;
  }
  const std::string_view before = kept.substr(0, kept.size() - kSays.size());
  std::string tail(kept.substr(before.size()));
  absl::AsciiStrToLower(&tail);
  return tail == kSays &&
         (before.empty() || !absl::ascii_isalnum(static_cast<unsigned char>(before.back())));
}

// Not those by which a call tells what became of a peer, or of the round.
bool IsOfThisProgram(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kResourceExhausted;
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
  return SaysOutOfDeviceMemory(text);
}

bool IsOutOfMemory(const absl::Status& status) {
  if (status.ok()) {
    return false;
  }
  const std::string text(status.message());
  return status.GetPayload(kPayload).has_value() || SaysOutOfMemory(text) ||
         (IsOfThisProgram(status.code()) && EndsInBareWords(text));
}

bool IsOutOfMemory(const std::exception& exception) {
  // A length that no memory could hold, such as -1, is a mistake of the program.
  const bool bad_alloc = dynamic_cast<const std::bad_alloc*>(&exception) != nullptr &&
                         dynamic_cast<const std::bad_array_new_length*>(&exception) == nullptr;
  return bad_alloc || SaysOutOfMemory(exception.what()) || EndsInBareWords(exception.what());
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
  return static_cast<MemoryShape>(LackOf(ToDeviceMemory(use)));
}

std::string ExplainMemoryUse(const MemoryUse& use) {
  return DescribeDeviceMemory(ToDeviceMemory(use));
}

std::string OutOfMemoryHints(bool micro_batch_can_shrink) {
  return DeviceMemoryHints(micro_batch_can_shrink);
}

}  // namespace ddl
