// In the largest unit of which there is at least one.
#include "agent/base/size_text.h"

#include <array>
#include <cstddef>
#include <cstdio>

namespace ddl {

std::string SizeText(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  constexpr double kStep = 1024;
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (amount >= kStep && unit + 1 < kUnits.size()) {
    amount /= kStep;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", amount,
                kUnits.at(unit));
  return text.data();
}

}  // namespace ddl
