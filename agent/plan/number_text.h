// Numbers and counts as the plan's texts have them. Not for others.
#ifndef DDLAUNCH_AGENT_PLAN_NUMBER_TEXT_H_
#define DDLAUNCH_AGENT_PLAN_NUMBER_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddl::plan {

// The shortest decimal that reads back as the same double, whatever the locale.
std::string RoundTrip(double value);
// Six significant digits: enough for people.
std::string Rounded(double value);
// "--name=5": `name` with its dashes.
std::string Flag(std::string_view name, std::int64_t value);
std::string Flag(std::string_view name, double value);
// "1 rank", "8 ranks".
std::string Ranks(std::int64_t world);
// "a", "a and b", "a, b and c".
class Listing {
 public:
  void Add(const std::string& item);
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // `word` joins the last two.
  [[nodiscard]] std::string Text(std::string_view word) const;

 private:
  std::string before_;
  std::string last_;
  std::size_t size_ = 0;
};

}  // namespace ddl::plan

#endif  // DDLAUNCH_AGENT_PLAN_NUMBER_TEXT_H_
