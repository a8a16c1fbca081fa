// Random identifiers from getrandom(2).
#include "agent/base/ids.h"

#include <sys/random.h>

#include <array>

#include "agent/base/check.h"

namespace ddl {

std::string NewRandomId() {
  std::array<unsigned char, 16> bytes{};
  // 16 bytes are below the 256 for which getrandom(2) never returns short.
  DDL_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  id.reserve(bytes.size() * 2);
  for (const unsigned char byte : bytes) {
    id.push_back(kDigits[byte >> 4U]);
    id.push_back(kDigits[byte & 0xFU]);
  }
  return id;
}

}  // namespace ddl
