// This host's name, and addresses with ports as text.
#include "agent/base/host.h"

#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"

namespace ddl {

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
    return "localhost";
  }
  return name.data();
}

std::string JoinHostPort(const std::string& host, std::uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace ddl
