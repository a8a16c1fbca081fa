// Three rows of Damerau's table at a time; words are compared one by one.
#include "agent/base/edit_distance.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace ddl {
namespace {

using Words = std::vector<std::string_view>;

Words WordsOf(std::string_view name) {
  constexpr std::string_view kBetween = "-_";
  Words words;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find_first_of(kBetween, at), name.size());
    if (end > at) {
      words.push_back(name.substr(at, end - at));
    }
    at = end + 1;
  }
  return words;
}

// A shorter piece of a word begins too many.
constexpr std::size_t kLeastLetters = 3;

// The same, or one is the beginning of the other.
bool AreAlike(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  return a == b || (shorter >= kLeastLetters && a.substr(0, shorter) == b.substr(0, shorter));
}

// All of `few` are among `many`, in the same order.
bool AreAmong(const Words& few, const Words& many) {
  auto from = many.begin();
  for (const std::string_view word : few) {
    from = std::find_if(from, many.end(),
                        [word](std::string_view other) { return AreAlike(word, other); });
    if (from == many.end()) {
      return false;
    }
    ++from;
  }
  return !few.empty();
}

// How much `many` has more than `few`: before all else whether the words of `few` are
// cut short or long, then how many words; nothing: `few` has others.
std::optional<std::size_t> Surplus(const Words& few, const Words& many) {
  if (few.size() > many.size() || !AreAmong(few, many)) {
    return std::nullopt;
  }
  const auto cut = std::count_if(few.begin(), few.end(), [&many](std::string_view word) {
    return std::find(many.begin(), many.end(), word) == many.end();
  });
  constexpr std::size_t kMostWords = 1000;
  return static_cast<std::size_t>(cut) * kMostWords + many.size() - few.size();
}

using Distance = std::function<std::optional<std::size_t>(std::string_view name)>;

// All names at the smallest distance.
std::vector<std::string_view> Nearest(std::span<const std::string_view> names,
                                      const Distance& distance_of) {
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::vector<std::string_view> nearest;
  for (const std::string_view name : names) {
    const std::optional<std::size_t> distance = distance_of(name);
    if (!distance.has_value() || *distance > best) {
      continue;
    }
    if (*distance < best) {
      best = *distance;
      nearest.clear();
    }
    nearest.push_back(name);
  }
  return nearest;
}

}  // namespace

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row.back();
}

std::vector<std::string_view> NearestNames(std::string_view asked,
                                           std::span<const std::string_view> names) {
  const Words words = WordsOf(asked);
  std::vector<std::string_view> nearest =
      Nearest(names, [&](std::string_view name) -> std::optional<std::size_t> {
        const bool may_be =
            words.size() > 1 || (asked.size() >= kLeastLetters && name.starts_with(asked));
        return may_be ? Surplus(words, WordsOf(name)) : std::nullopt;
      });
  if (!nearest.empty()) {
    return nearest;
  }
  constexpr std::size_t kLettersPerSlip = 3;
  const std::size_t most = std::max<std::size_t>(1, asked.size() / kLettersPerSlip);
  nearest = Nearest(names, [&](std::string_view name) {
    const std::size_t distance = EditDistance(asked, name);
    return distance <= most ? std::optional(distance) : std::nullopt;
  });
  if (!nearest.empty()) {
    return {nearest.front()};
  }
  return Nearest(names, [&](std::string_view name) { return Surplus(WordsOf(name), words); });
}

std::string DidYouMean(std::span<const std::string_view> names, std::string_view prefix) {
  constexpr std::size_t kMost = 3;
  const std::size_t count = std::min(names.size(), kMost);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += i == 0 ? "; did you mean " : (i + 1 == count ? " or " : ", ");
    text += prefix;
    text += names[i];
  }
  return text.empty() ? text : text + "?";
}

}  // namespace ddl
