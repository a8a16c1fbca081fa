// Brackets count outside of texts only; whether they match is the parser's affair.
#include "launcher/failures/bounded_json.h"

namespace ddl {
namespace {

bool NestsTooDeep(std::string_view text) {
  std::size_t depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      i += c == '\\' ? 1 : 0;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonNesting) {
        return true;
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

nlohmann::json ParseBoundedJson(std::string_view text) {
  return NestsTooDeep(text) ? nlohmann::json(nlohmann::json::value_t::discarded)
                            : nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

const nlohmann::json* MemberOf(const nlohmann::json* value, const char* key) {
  if (value == nullptr || !value->is_object()) {
    return nullptr;
  }
  const auto it = value->find(key);  // does not throw where operator[] might
  return it != value->end() ? &*it : nullptr;
}

}  // namespace ddl
