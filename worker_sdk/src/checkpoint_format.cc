// Encoding, checksum and careful decoding of checkpoints.
#include "worker_sdk/src/checkpoint_format.h"

#include <zlib.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace ddl::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view kMagic = "DDLCKPT1";
constexpr std::size_t kHeadBytes = kMagic.size() + sizeof(std::uint64_t) + sizeof(std::uint32_t);

std::uint32_t Crc32(std::string_view bytes) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): zlib's own byte type.
  const auto* const data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<std::uint32_t>(::crc32_z(0, data, bytes.size()));
}

template <typename T>
void Append(std::string* out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t end = out->size();
  out->resize(end + sizeof(T));
  std::memcpy(out->data() + end, &value, sizeof(T));
}

void AppendText(std::string* out, std::string_view text) {
  Append<std::uint64_t>(out, text.size());
  out->append(text);
}

template <typename T>
void AppendMap(std::string* out, const std::map<std::string, T>& map) {
  Append<std::uint64_t>(out, map.size());
  for (const auto& [name, value] : map) {
    AppendText(out, name);
    Append(out, value);
  }
}

// What the body needs, or a little more.
std::size_t BodyBytes(const CheckpointState& state) {
  constexpr std::size_t kNumber = sizeof(std::uint64_t);
  std::size_t bytes = 4 * kNumber;  // the step, and the number of entries of each map
  for (const auto& [name, values] : state.tensors) {
    bytes += 2 * kNumber + name.size() + values.size() * sizeof(float);
  }
  const auto add = [&bytes](const auto& map) {
    for (const auto& entry : map) {
      bytes += 2 * kNumber + entry.first.size();
    }
  };
  add(state.integers);
  add(state.reals);
  return bytes;
}

// Reads from the front of `bytes`; every read may fail at the end of it.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  bool Read(T* value) {
    if (bytes_.size() < sizeof(T)) {
      return false;
    }
    std::memcpy(value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return true;
  }

  bool Read(std::string* text) {
    std::uint64_t length = 0;
    if (!Read(&length) || bytes_.size() < length) {
      return false;
    }
    text->assign(bytes_.substr(0, length));
    bytes_.remove_prefix(length);
    return true;
  }

  bool Read(std::vector<float>* values) {
    std::uint64_t count = 0;
    if (!Read(&count) || bytes_.size() / sizeof(float) < count) {
      return false;
    }
    values->resize(count);
    if (count > 0) {
      std::memcpy(values->data(), bytes_.data(), count * sizeof(float));
    }
    bytes_.remove_prefix(count * sizeof(float));
    return true;
  }

  template <typename T>
  bool Read(std::map<std::string, T>* map) {
    std::uint64_t count = 0;
    if (!Read(&count)) {
      return false;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string name;
      if (!Read(&name) || !Read(&(*map)[name])) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool AtEnd() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace

std::string EncodeCheckpoint(const CheckpointState& state) {
  // A model may be large: one copy of it, which does not move as it grows.
  std::string bytes;
  bytes.reserve(kHeadBytes + BodyBytes(state));
  bytes.append(kMagic);
  bytes.resize(kHeadBytes);  // the rest of the head comes last
  Append(&bytes, state.step);
  Append<std::uint64_t>(&bytes, state.tensors.size());
  for (const auto& [name, values] : state.tensors) {
    AppendText(&bytes, name);
    Append<std::uint64_t>(&bytes, values.size());
    const std::size_t end = bytes.size();
    bytes.resize(end + values.size() * sizeof(float));
    if (!values.empty()) {
      std::memcpy(bytes.data() + end, values.data(), values.size() * sizeof(float));
    }
  }
  AppendMap(&bytes, state.integers);
  AppendMap(&bytes, state.reals);

  const std::string_view body = std::string_view(bytes).substr(kHeadBytes);
  const std::uint64_t length = body.size();
  const std::uint32_t crc = Crc32(body);
  char* const head = bytes.data() + kMagic.size();
  std::memcpy(head, &length, sizeof(length));
  std::memcpy(head + sizeof(length), &crc, sizeof(crc));
  return bytes;
}

absl::StatusOr<CheckpointState> DecodeCheckpoint(std::string_view bytes) {
  if (bytes.size() < kHeadBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("it does not begin like a checkpoint");
  }
  Reader head(bytes.substr(kMagic.size()));
  std::uint64_t length = 0;
  std::uint32_t crc = 0;
  (void)(head.Read(&length) && head.Read(&crc));  // kHeadBytes are there
  const std::string_view body = bytes.substr(kHeadBytes);
  if (body.size() != length) {
    return absl::DataLossError("it has " + std::to_string(body.size()) + " bytes of " +
                               std::to_string(length));
  }
  if (Crc32(body) != crc) {
    return absl::DataLossError("its checksum is wrong");
  }
  Reader reader(body);
  CheckpointState state;
  if (!reader.Read(&state.step) || !reader.Read(&state.tensors) || !reader.Read(&state.integers) ||
      !reader.Read(&state.reals) || !reader.AtEnd()) {
    return absl::DataLossError("its content does not follow the format");
  }
  return state;
}

}  // namespace ddl::internal
