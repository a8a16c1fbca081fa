// Numbers as text.
#include "agent/plan/number_text.h"

#include <array>
#include <charconv>
#include <system_error>

#include "agent/base/check.h"

namespace ddl::plan {
namespace {

constexpr std::size_t kLongestDouble = 32;

}  // namespace

std::string RoundTrip(double value) {
  std::array<char, kLongestDouble> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  DDL_CHECK(error == std::errc());
  return {buffer.data(), end};
}

std::string Rounded(double value) {
  constexpr int kDigits = 6;
  std::array<char, kLongestDouble> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::general, kDigits);
  DDL_CHECK(error == std::errc());
  return {buffer.data(), end};
}

std::string Flag(std::string_view name, std::int64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

std::string Flag(std::string_view name, double value) {
  return std::string(name) + "=" + RoundTrip(value);
}

std::string Ranks(std::int64_t world) {
  return std::to_string(world) + (world == 1 ? " rank" : " ranks");
}

void Listing::Add(const std::string& item) {
  if (!last_.empty()) {
    before_ += before_.empty() ? last_ : ", " + last_;
  }
  last_ = item;
  ++size_;
}

std::string Listing::Text(std::string_view word) const {
  return before_.empty() ? last_ : before_ + " " + std::string(word) + " " + last_;
}

}  // namespace ddl::plan
