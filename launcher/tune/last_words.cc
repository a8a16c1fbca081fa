// The device's words are agent/base's; the host's are here.
#include "launcher/tune/last_words.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/ascii.h"
#include "agent/base/device_memory.h"

namespace ddl::tune {
namespace {

// Of the host, and of programs of no known library; in lower case.
constexpr std::array<std::string_view, 4> kWords = {"out of memory", "std::bad_alloc",
                                                    "memoryerror", "the out-of-memory killer:"};

}  // namespace

bool SaysOutOfMemory(std::string_view output) {
  std::string text(output);
  absl::AsciiStrToLower(&text);
  return SaysOutOfDeviceMemory(output) ||
         std::any_of(kWords.begin(), kWords.end(), [&text](std::string_view word) {
           return text.find(word) != std::string::npos;
         });
}

}  // namespace ddl::tune
