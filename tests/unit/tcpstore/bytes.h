// The bytes of requests and replies, as PyTorch's clients write and read them.
#ifndef DDLAUNCH_TESTS_UNIT_TCPSTORE_BYTES_H_
#define DDLAUNCH_TESTS_UNIT_TCPSTORE_BYTES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/tcpstore/protocol.h"

namespace ddl::tcpstore {

inline std::string Byte(int value) {
  return std::string(1, static_cast<char>(value));
}
inline std::string U32(std::uint32_t value) {
  std::string out;
  AppendUint32(value, out);
  return out;
}
inline std::string I64(std::int64_t value) {
  std::string out;
  AppendInt64(value, out);
  return out;
}
inline std::string Text(std::string_view text) {
  std::string out;
  AppendText(text, out);
  return out;
}
// What a client of 2.x sends first.
inline std::string Opening() {
  return Byte(0) + U32(kMagic);
}

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_TESTS_UNIT_TCPSTORE_BYTES_H_
