// "cannot do this: Reason (errno 2)". Thread safe.
#ifndef DDLAUNCH_AGENT_BASE_ERRNO_TEXT_H_
#define DDLAUNCH_AGENT_BASE_ERRNO_TEXT_H_

#include <string>
#include <string_view>
#include <system_error>

namespace ddl {

inline std::string ErrnoText(std::string_view what, int error) {
  std::string text(what);
  text.append(": ").append(std::generic_category().message(error));
  text.append(" (errno ").append(std::to_string(error)).append(")");
  return text;
}

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_BASE_ERRNO_TEXT_H_
